"""Tell how much of a turn's speech can be played, from its bytes as they come: WAV or bare 16-bit samples."""

from __future__ import annotations

import struct

from omniwatch.probe import TurnFailedError

_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")
_OPEN_LENGTHS = (0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF - 36, 0xFFFFFFFF - 36)
"""Lengths that a writer states which does not know its own yet."""
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
LOWEST_HZ, HIGHEST_HZ = 4000, 192_000
MAX_HEADER_BYTES = 65_536


class Speech:
    """Speech of one source, in pieces of any size. A WAV may be cut anywhere; another may follow it.

    `rate_hz` is what the server said beside the sound, or is known of it, with one channel; a WAV's header overrules it where
    `stated` is False, and must agree with it where it is True.
    """

    def __init__(self, rate_hz: float, *, stated: bool = False) -> None:
        self._rate_hz = rate_hz
        self._stated = stated
        self._head = bytearray()
        self._in_wav = False
        self._bytes_per_s = 0.0
        self._frame_bytes = 2
        self._left: int | None = None
        self._part = 0

    def state(self, rate_hz: float | None) -> None:
        """Take what the server says beside the next piece."""
        if rate_hz:
            if not LOWEST_HZ <= rate_hz <= HIGHEST_HZ:
                raise TurnFailedError("malformed", f"a sample rate of {rate_hz:g} Hz")
            self._rate_hz, self._stated = rate_hz, True

    def feed(self, piece: bytes) -> float:
        """Return the seconds that the piece adds to what can play. Raises TurnFailedError for a header that does not hold."""
        seconds = 0.0
        while piece:
            if not self._in_wav and (self._head or piece[:1] == b"R"):
                piece = self._header(piece)
                continue
            take = len(piece) if self._left is None else min(self._left, len(piece))
            seconds += self._samples(take)
            if self._left is not None:
                self._left -= take
                if not self._left:
                    self._in_wav, self._left = False, None
            piece = piece[take:]
        return seconds

    def next_file(self) -> None:
        """Say that the next piece begins a file of its own. Raises TurnFailedError where the one before is not whole."""
        self.end()
        self._in_wav, self._left, self._part = False, None, 0

    def end(self) -> None:
        """Say that nothing more comes. Raises TurnFailedError where something is missing."""
        if self._head:
            raise TurnFailedError("cut", "the sound ended within its WAV header")
        if self._in_wav and self._left:
            raise TurnFailedError("cut", f"half a WAV: {self._left} bytes fewer than its header says")

    def _samples(self, size: int) -> float:
        per_s = self._bytes_per_s if self._in_wav else self._rate_hz * 2
        frame = self._frame_bytes if self._in_wav else 2
        whole, self._part = divmod(self._part + size, frame)
        return whole * frame / per_s

    def _header(self, piece: bytes) -> bytes:
        """Take a WAV's head; return what follows it."""
        self._head += piece
        head = bytes(self._head)
        if not b"RIFF".startswith(head[:4]):
            # Bare samples that happen to begin with the same byte.
            self._head.clear()
            self._in_wav, self._left = True, None
            self._bytes_per_s, self._frame_bytes = self._rate_hz * 2, 2
            return head
        if len(head) >= 12 and head[8:12] != b"WAVE":
            raise TurnFailedError("malformed", "RIFF, but no WAVE")
        at, known = 12, False
        while at + _CHUNK.size <= len(head):
            name, length = _CHUNK.unpack_from(head, at)
            at += _CHUNK.size
            if name == b"data":
                if not known:
                    raise TurnFailedError("malformed", "a WAV without a format before its samples")
                self._head.clear()
                self._in_wav, self._part = True, 0
                self._left = None if length in _OPEN_LENGTHS else length
                return head[at:]
            if name == b"fmt ":
                if at + _FORMAT.size > len(head):
                    break
                self._format(*_FORMAT.unpack_from(head, at))
                known = True
            at += length + length % 2
        if len(head) > MAX_HEADER_BYTES:
            raise TurnFailedError("malformed", f"a WAV header of more than {MAX_HEADER_BYTES} bytes")
        return b""

    def _format(
        self, kind: int, channels: int, rate_hz: int, bytes_per_s: int, frame: int, bits: int
    ) -> None:
        if kind not in (_PCM, _FLOAT, _EXTENSIBLE):
            raise TurnFailedError("malformed", f"a WAV of format {kind}: neither PCM nor float")
        if not LOWEST_HZ <= rate_hz <= HIGHEST_HZ or not channels or frame != channels * bits // 8:
            raise TurnFailedError(
                "malformed", f"a WAV header of {rate_hz} Hz, {channels} channels, {bits} bits"
            )
        if bytes_per_s != rate_hz * frame:
            raise TurnFailedError(
                "malformed",
                f"a WAV header that says {rate_hz} Hz and {bytes_per_s} bytes a second of {frame} each",
            )
        if self._stated and rate_hz != self._rate_hz:
            raise TurnFailedError(
                "malformed", f"the server says {self._rate_hz:g} Hz, its WAV header {rate_hz} Hz"
            )
        self._bytes_per_s, self._frame_bytes = float(bytes_per_s), frame
