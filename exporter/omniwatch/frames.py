"""The frame protocol: the 8-byte header, ids that wrap, checksums, and frames cut out of a byte stream.

Each frame of speech carries the header, little-endian: `uint32 frame_id` (+1 every 80 ms), `uint16 checksum`,
`uint8 expert_mask`, `uint8 reserved`. On a byte stream follow `uint32 length` of the payload, `uint32 part`, the payload.

Speech is part 0 of its frame, and its `reserved` is 0. Ids count 80 ms of speech each, so text and other
content takes no id: it is part 1, 2, 3 … of the last frame before it, and `reserved` is its `Kind`. So (frame_id, part)
is the place in a turn. Before any speech, the frame is the one before the turn's first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct("<IHBB")
"""frame_id, checksum, expert_mask, reserved."""
PREFIX = struct.Struct("<IHBBII")
"""The header, the payload's length in bytes, the part."""
MAX_PAYLOAD = 1 << 23
"""The longest payload a reader takes, bytes: what claims more is not a frame."""
MEDIA_TYPE = "application/vnd.omniwatch.frames"

Buffer = bytes | bytearray | memoryview

ID_MASK = 0xFFFFFFFF
"""The bits of a frame id."""
_MODULO = ID_MASK + 1
_HALF = 1 << 31


class FrameError(ValueError):
    """Bytes that are no frame: the stream they came from cannot be read on."""


class Kind(IntEnum):
    """What a payload is: the header's last byte, 0 for speech, as a plain header has it."""

    SPEECH = 0
    TEXT = 1
    """UTF-8 text."""
    EVENT = 2
    """A JSON object of the model server that is neither plain text nor speech."""
    FORMAT = 3
    """A JSON object that says what speech from here on is."""
    END = 4
    """A JSON object with `reason`: nothing follows."""
    IDLE = 5
    """Nothing to say yet, and still here. Takes no place in the turn."""


class Frame(NamedTuple):
    """One frame as read; `payload` is a view of the bytes it came in."""

    frame_id: int
    checksum: int
    expert_mask: int
    kind: int
    part: int
    payload: memoryview


def checksum(payload: Buffer) -> int:
    """XOR of the payload's 16-bit little-endian words; an odd last byte counts as a word of its own."""
    # Folding one long integer onto itself takes microseconds where a loop over the words takes a hundred.
    words = (len(payload) + 1) // 2
    folded = int.from_bytes(payload, "little")
    while words > 1:
        words = (words + 1) // 2
        folded = (folded >> 16 * words) ^ (folded & ((1 << 16 * words) - 1))
    return folded


def codes_checksum(codes: Sequence[int]) -> int:
    """XOR of codebooks 0-3 of one frame's codes (0-65535 each)."""
    folded = 0
    for code in codes[:4]:
        folded ^= code
    return folded


def encode_into(
    buffer: bytearray | memoryview,
    offset: int,
    frame_id: int,
    payload: Buffer,
    *,
    kind: int = Kind.SPEECH,
    part: int = 0,
    expert_mask: int = 0,
    check: int | None = None,
) -> int:
    """Write one frame at `offset`; return the offset after it. `check` replaces the payload's own checksum.

    Raises struct.error where a field is out of its range or the buffer is too short.
    """
    start = offset + PREFIX.size
    end = start + len(payload)
    check = checksum(payload) if check is None else check
    PREFIX.pack_into(buffer, offset, frame_id, check, expert_mask, kind, len(payload), part)
    if end > len(buffer):
        raise struct.error(f"a frame of {end - offset} bytes does not fit {len(buffer) - offset}")
    buffer[start:end] = payload
    return end


def encode(
    frame_id: int,
    payload: Buffer,
    *,
    kind: int = Kind.SPEECH,
    part: int = 0,
    expert_mask: int = 0,
    check: int | None = None,
) -> bytes:
    """Return one frame's bytes; the arguments are those of `encode_into`."""
    check = checksum(payload) if check is None else check
    return b"".join((PREFIX.pack(frame_id, check, expert_mask, kind, len(payload), part), payload))


def verify(frame: Frame, *, codes: bool = False) -> bool:
    """Whether a frame's checksum holds; with `codes` the payload is one frame of 16-bit codes, codebook 0 first."""
    speech_codes = codes and frame.kind == Kind.SPEECH
    return checksum(frame.payload[:8] if speech_codes else frame.payload) == frame.checksum


class Decoder:
    """Cuts frames out of a byte stream that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Raises FrameError: what follows cannot be told apart any more.

        Payloads are views of `data`; only a frame that arrives in pieces is put together anew.
        """
        if self._rest:
            data = self._rest + data
        view, offset, size = memoryview(data), 0, len(data)
        self._rest = b""
        while size - offset >= PREFIX.size:
            frame_id, check, mask, kind, length, part = PREFIX.unpack_from(view, offset)
            if length > MAX_PAYLOAD:
                raise FrameError(f"a frame of {length} bytes; at most {MAX_PAYLOAD} are taken")
            end = offset + PREFIX.size + length
            if end > size:
                break
            yield Frame(frame_id, check, mask, kind, part, view[offset + PREFIX.size : end])
            offset = end
        self._rest = data[offset:]

    @property
    def pending(self) -> int:
        """Bytes of a frame that has begun and not ended."""
        return len(self._rest)


def add(frame_id: int, count: int) -> int:
    """Return the id `count` frames later (earlier when negative), around the end of 32 bits."""
    return (frame_id + count) % _MODULO


def distance(older: int, newer: int) -> int:
    """How many frames `newer` is after `older`, -2**31 … 2**31 - 1 (RFC 1982 leaves 2**31 itself undefined)."""
    return (newer - older + _HALF) % _MODULO - _HALF


class Jump(NamedTuple):
    """What an id is to the one expected: `kind` is "next", "gap", "old" or "epoch"; `lost` frames lie between (gap)."""

    kind: str
    lost: int = 0


def jump(expected: int, frame_id: int, *, cache_win: int = 75, client_win: int = 150) -> Jump:
    """Place `frame_id` where `expected` should come: that one, one past a gap, one from before, or a new epoch's first.

    A new epoch starts where the id goes back further than the server's cache or ahead further than the client's.
    """
    step = distance(expected, frame_id)
    if step == 0:
        return Jump("next")
    if 0 < step <= client_win:
        return Jump("gap", step)
    if -cache_win <= step < 0:
        return Jump("old")
    return Jump("epoch")
