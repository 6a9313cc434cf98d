"""Read the events of a streamed chat (vLLM-Omni 0.30) and cut their speech into frames."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from omniwatch.media import wav


class Pcm(NamedTuple):
    """Sound of one event: 16-bit little-endian samples, channels interleaved."""

    samples: memoryview
    rate_hz: int
    channels: int


class Chat(NamedTuple):
    """One event of a streamed chat: its JSON, and its sound where it has any that can be cut into frames."""

    raw: bytes
    body: dict[str, Any]
    pcm: Pcm | None = None

    @property
    def extra(self) -> bool:
        """Whether the event says more than its text or sound: an end, its usage, timings."""
        choice: dict[str, Any] = self.body["choices"][0]
        return bool(choice.get("finish_reason") or self.body.get("usage") or self.body.get("metrics"))

    @property
    def text(self) -> str | None:
        """The text, where text is all that the event says."""
        if self.pcm or not _is_one_choice(self.body) or self.extra or self.body.get("modality") == "audio":
            return None
        delta = self.body["choices"][0].get("delta")
        if not isinstance(delta, dict) or not {"role", "content"}.issuperset(delta):
            return None
        content = delta.get("content")
        return content if isinstance(content, str) and content else None


def _is_one_choice(body: dict[str, Any]) -> bool:
    choices = body.get("choices")
    return (
        isinstance(choices, list)
        and len(choices) == 1
        and isinstance(choices[0], dict)
        and choices[0].get("index", 0) == 0
    )


def read(raw: bytes) -> Chat:
    """Read one event's data. What is no chat event, or is sound of another kind, comes back without `pcm`."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Chat(raw, {})
    if not isinstance(body, dict):
        return Chat(raw, {})
    if body.get("modality") != "audio" or not _is_one_choice(body):
        return Chat(raw, body)
    choice = body["choices"][0]
    delta = choice.get("delta")
    content = delta.get("content") if isinstance(delta, dict) else None
    meta = choice.get("audio_metadata")
    if not isinstance(content, str) or not content:
        return Chat(raw, body)
    try:
        sound = memoryview(b64decode(content, validate=True))
    except ValueError:
        return Chat(raw, body)
    return Chat(raw, body, _pcm(sound, meta if isinstance(meta, dict) else {}))


def _pcm(sound: memoryview, meta: dict[str, Any]) -> Pcm | None:
    if bytes(sound[:4]) == b"RIFF":
        return _wav(sound)
    if meta.get("format", "pcm16") not in ("pcm16", "pcm"):
        return None
    rate, channels = meta.get("sample_rate_hz") or 24_000, meta.get("channels") or 1
    if not isinstance(rate, int) or not isinstance(channels, int):
        return None
    return _whole(sound, rate, channels)


def _wav(sound: memoryview) -> Pcm | None:
    """Read a WAV file of 16-bit samples; None for any other."""
    head = wav.read_head(sound)
    if not wav.is_wav(sound) or not head.whole or head.format is None or not head.format.is_pcm16:
        return None
    samples = sound[head.at : head.at + head.size(len(sound))]
    return _whole(samples, head.format.rate_hz, head.format.channels)


def _whole(samples: memoryview, rate_hz: int, channels: int) -> Pcm | None:
    if not (wav.is_rate(rate_hz) and 1 <= channels <= 8):
        return None
    return Pcm(samples[: len(samples) - len(samples) % (2 * channels)], rate_hz, channels)


class Cutter:
    """Cuts sound that comes in chunks of any length into frames of `frame_ms`; what is left waits for the next chunk."""

    def __init__(self, frame_ms: float) -> None:
        self.frame_ms = frame_ms
        self._rest = b""
        self.format: tuple[int, int] | None = None
        """(samples a second, channels) of what was pushed last."""

    def push(self, pcm: Pcm) -> Iterator[memoryview]:
        """Yield whole frames, each `frame_ms` of samples, in order."""
        self.format = (pcm.rate_hz, pcm.channels)
        size = self.frame_samples * 2 * pcm.channels
        samples, start = pcm.samples, 0
        if self._rest:
            start = size - len(self._rest)
            first = b"".join((self._rest, samples[:start]))
            self._rest = b""
            if len(first) < size:
                self._rest = first
                return
            yield memoryview(first)
        while len(samples) - start >= size:
            yield samples[start : start + size]
            start += size
        self._rest = bytes(samples[start:])

    def flush(self) -> memoryview | None:
        """Return what is left, shorter than a frame, if anything."""
        rest, self._rest = self._rest, b""
        return memoryview(rest) if rest else None

    @property
    def frame_samples(self) -> int:
        """Samples a channel in one frame."""
        return round((self.format or (24_000, 1))[0] * self.frame_ms / 1000)
