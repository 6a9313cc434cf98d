"""Read and write the header of a WAV file (RIFF; Microsoft Multimedia Programming Interface, 1991)."""

from __future__ import annotations

import struct
from typing import NamedTuple

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
LOWEST_HZ, HIGHEST_HZ = 1_000, 384_000
"""Bounds of a sample rate; one beyond them is invalid."""
MAX_HEADER_BYTES = 65_536
OPEN_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF - 36, 0xFFFFFFFF - 36)
"""Sizes that a writer states before it knows its own."""
_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")
_SUBFORMAT_AT = 24
"""Offset of the real encoding in the format chunk of an EXTENSIBLE file."""


class WavError(ValueError):
    """An invalid WAV header."""


class Format(NamedTuple):
    """The format chunk. `kind` is the encoding: PCM, FLOAT or another number; `frame_bytes` is one sample of each channel."""

    kind: int
    channels: int
    rate_hz: int
    stated_bytes_per_s: int
    frame_bytes: int
    bits: int

    @property
    def bytes_per_s(self) -> int:
        """Bytes of one second; 0 where the header states no valid sample rate."""
        return self.rate_hz * self.frame_bytes if is_rate(self.rate_hz) else 0

    @property
    def is_pcm16(self) -> bool:
        """Whether the samples are 16-bit integers."""
        return self.kind == PCM and self.bits == 16


class Head(NamedTuple):
    """What the header states. `stated_bytes` is the size of the samples, None for one of OPEN_SIZES.

    `whole` is False where the bytes given end before the samples begin. `at` is then where they would begin if the next
    chunk is theirs.
    """

    format: Format | None
    at: int
    stated_bytes: int | None
    whole: bool

    def size(self, file_bytes: int) -> int:
        """Return the bytes of samples in a file of `file_bytes`: those stated, or all to its end if it has fewer."""
        there = max(0, file_bytes - self.at)
        return there if self.stated_bytes is None else min(self.stated_bytes, there)


def is_rate(rate_hz: float) -> bool:
    """Whether a sample rate is within the bounds. NaN is not."""
    return LOWEST_HZ <= rate_hz <= HIGHEST_HZ


def is_wav(data: bytes | memoryview) -> bool:
    """Whether these are the first bytes of a WAV file."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def read_head(data: bytes | memoryview, *, strict: bool = False) -> Head:
    """Read the chunks before the samples. `data` are the file's first bytes, as many as there are.

    If `strict`, raises WavError for a header that contradicts itself or has no known encoding; more bytes do not mend it.
    """
    if strict:
        _check_start(data)
    form, at = None, 12
    while at + _CHUNK.size <= len(data):
        name, length = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if name == b"data":
            if strict and form is None:
                raise WavError("a WAV without a format before its samples")
            return Head(form, at, None if length in OPEN_SIZES else length, True)
        if name == b"fmt ":
            form = _format(data, at, length, strict)
        at += length + length % 2
    if strict and len(data) > MAX_HEADER_BYTES:
        raise WavError(f"a WAV header of more than {MAX_HEADER_BYTES} bytes")
    return Head(form, at + _CHUNK.size, None, False)


def _check_start(data: bytes | memoryview) -> None:
    if not b"RIFF".startswith(bytes(data[:4])):
        raise WavError("no RIFF")
    if len(data) >= 12 and not is_wav(data):
        raise WavError("RIFF, but no WAVE")


def _format(data: bytes | memoryview, at: int, length: int, strict: bool) -> Format | None:
    if strict and length < _FORMAT.size:
        raise WavError(f"a WAV with a format of {length} bytes")
    if length < _FORMAT.size or at + _FORMAT.size > len(data):
        return None
    kind, channels, rate_hz, bytes_per_s, frame_bytes, bits = _FORMAT.unpack_from(data, at)
    if kind == EXTENSIBLE and length >= _SUBFORMAT_AT + 2:
        if at + _SUBFORMAT_AT + 2 > len(data):
            return None
        kind = int.from_bytes(data[at + _SUBFORMAT_AT : at + _SUBFORMAT_AT + 2], "little")
    form = Format(kind, channels, rate_hz, bytes_per_s, frame_bytes, bits)
    if strict:
        _check(form)
    return form


def _check(form: Format) -> None:
    if form.kind not in (PCM, FLOAT):
        raise WavError(f"a WAV of format {form.kind}: neither PCM nor float")
    if (
        not is_rate(form.rate_hz)
        or not form.frame_bytes
        or form.frame_bytes != form.channels * form.bits // 8
    ):
        raise WavError(f"a WAV header of {form.rate_hz} Hz, {form.channels} channels, {form.bits} bits")
    if form.stated_bytes_per_s != form.bytes_per_s:
        raise WavError(
            f"a WAV header that says {form.rate_hz} Hz and {form.stated_bytes_per_s} bytes a second "
            f"of {form.frame_bytes} each"
        )


def header(rate_hz: int, channels: int, size: int) -> bytes:
    """Return the 44 bytes before `size` bytes of PCM16 in a WAV file."""
    return b"".join(
        (
            _CHUNK.pack(b"RIFF", 36 + size),
            b"WAVE",
            _CHUNK.pack(b"fmt ", _FORMAT.size),
            _FORMAT.pack(PCM, channels, rate_hz, 2 * channels * rate_hz, 2 * channels, 16),
            _CHUNK.pack(b"data", size),
        )
    )
