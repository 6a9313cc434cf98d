"""A question's sound, from a WAV file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omniwatch.media import wav
from omniwatch.system import user_file
from omniwatch.system.errors import UserError

RATES_HZ = (16_000, 24_000)
"""What servers take: vLLM-Omni 0.30 by turns, and the general dialect."""


@dataclass(frozen=True)
class Sound:
    """16-bit samples of one channel."""

    samples: bytes
    rate_hz: int

    def pieces(self, seconds: float) -> Iterator[bytes]:
        """Yield it in pieces of so many seconds; the last one may be shorter."""
        size = 2 * round(self.rate_hz * seconds)
        for at in range(0, len(self.samples), size):
            yield self.samples[at : at + size]


def read_sound(path: Path) -> Sound:
    """Return a WAV file's sound. Raises UserError for what is not 16-bit, mono and at one of RATES_HZ."""
    try:
        data = user_file.read(path)
    except OSError as error:
        raise UserError(f"--audio: {error}") from error
    head = wav.read_head(data)
    form = head.format
    if not wav.is_wav(data) or form is None or not head.whole:
        raise UserError(f"--audio: {path}: not a WAV file")
    if not form.is_pcm16 or form.channels != 1 or form.rate_hz not in RATES_HZ:
        expected = "expected 16-bit mono at 24000 Hz, or at 16000 for vLLM-Omni 0.30"
        raise UserError(
            f"--audio: {path}: {expected}, got {form.bits}-bit, {form.channels} channels, {form.rate_hz} Hz"
        )
    samples = data[head.at : head.at + head.size(len(data))]
    if len(samples) < 2:
        raise UserError(f"--audio: {path}: no sound in it")
    return Sound(samples, form.rate_hz)
