"""Compute a piece of speech's duration from its first bytes and its size, without decoding it."""

from __future__ import annotations

import binascii

from omniwatch.media import wav
from omniwatch.tap.partial_json import ELIDED, HEAD_BYTES, SILENT, ZEROS, are_zeros

SAMPLE_RATE_HZ = 24_000.0
"""What Qwen3-Omni speaks at, where nothing else is stated."""
_ZEROS = ZEROS.decode()
BYTES_PER_SAMPLE = {
    "pcm16": 2,
    "pcm": 2,
    # Raw audio under this name is the rest of a file whose header came with an earlier chunk.
    "wav": 2,
    "pcm_f32le": 4,
    "g711_ulaw": 1,
    "g711_alaw": 1,
}

_MAX_DIGITS = 12
"""Digits of a length that stands for a shortened text: the server's own text may have looked like one."""


def duration_ms(text: str, encoding: str | None = None, rate_hz: float | None = None) -> float:
    """Return the milliseconds of base64 audio, its text possibly shortened; 0 where they cannot be told.

    `encoding` is the wire's name for the format (None: 16-bit samples), `rate_hz` the sample rate; the header of a WAV
    file overrules both. One channel.
    """
    head, size = measure(text)
    if wav.is_wav(head):
        return _wav_ms(head, size)
    width = BYTES_PER_SAMPLE.get(encoding or "pcm16")
    if width is None:
        return 0.0
    if not rate_hz or not wav.is_rate(rate_hz):
        rate_hz = 8_000.0 if width == 1 else SAMPLE_RATE_HZ
    return size // width / rate_hz * 1000.0


def is_silent(text: str) -> bool | None:
    """Whether base64 audio, its text possibly shortened, is digital silence; None where that is not known.

    Only zeros count, which are silence in every format of whole samples. The head may be a file's.
    """
    if text.endswith(SILENT):
        return True if ELIDED in text else None
    end = len(text) - text.count("=", -2)
    return True if are_zeros(text, _ZEROS, HEAD_BYTES, end) else None


def measure(text: str) -> tuple[bytes, int]:
    """Return the first bytes of base64 text and the number of bytes in all of it. Of what is no base64: nothing."""
    head, elided, number = text.partition(ELIDED)
    head = head[:HEAD_BYTES]
    try:
        size = (
            int(number.removesuffix(SILENT)[:_MAX_DIGITS])
            if elided
            else len(text) * 3 // 4 - text.count("=", -2)
        )
        return binascii.a2b_base64(head[: len(head) // 4 * 4]), max(0, size)
    except ValueError:
        return b"", 0


def _wav_ms(data: bytes, size: int) -> float:
    """Return the milliseconds of a WAV file of `size` bytes, from its first ones; 0 where they cannot be told.

    Samples that begin past these bytes fill the rest of the file.
    """
    head = wav.read_head(data)
    bytes_per_s = head.format.bytes_per_s if head.format else 0
    return head.size(size) / bytes_per_s * 1000.0 if bytes_per_s else 0.0
