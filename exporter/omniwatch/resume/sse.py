"""Server-sent events cut out of body chunks, and what a streamed chat's events say (vLLM-Omni 0.30)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")
DONE = b"[DONE]"


class TooLongError(ValueError):
    """An event that does not end within the bound."""


class Events:
    """Collects body chunks and gives the data of each whole event; comments and other fields are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._rest = bytearray()

    def feed(self, body: bytes) -> list[bytes]:
        """Return the data of the events that `body` completes. Raises TooLongError."""
        searched = len(self._rest)
        self._rest += body
        text, start, found = self._rest, 0, []
        # An end may lie across two chunks, by up to three bytes; what lies before them was searched already.
        for end in _END.finditer(text, max(0, searched - 3)):
            data = _data(bytes(text[start : end.start()]))
            start = end.end()
            if data:
                found.append(data)
        self._rest = text[start:]
        if len(self._rest) > self._max:
            raise TooLongError(f"an event of more than {self._max} bytes")
        return found


def _data(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\n" not in event and b"\r" not in event:
        return event[6:]
    lines = (line for line in _LINE.split(event) if line.startswith(b"data:"))
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines)


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
    """Read a RIFF file of 16-bit PCM; a data length that was never filled in (streamed) means all there is."""
    offset, form = 12, None
    while offset + 8 <= len(sound):
        name, size = (
            bytes(sound[offset : offset + 4]),
            int.from_bytes(sound[offset + 4 : offset + 8], "little"),
        )
        offset += 8
        if name == b"fmt ":
            form = sound[offset : offset + size]
        elif name == b"data":
            if form is None or len(form) < 16 or int.from_bytes(form[14:16], "little") != 16:
                return None
            # 1 is PCM; 0xFFFE says its kind further on, where PCM is 1 again.
            kind = int.from_bytes(form[:2], "little")
            if kind not in (1, 0xFFFE) or (kind == 0xFFFE and bytes(form[24:26]) != b"\x01\x00"):
                return None
            size = size or len(sound)
            return _whole(
                sound[offset : offset + size],
                int.from_bytes(form[4:8], "little"),
                int.from_bytes(form[2:4], "little"),
            )
        offset += size + size % 2
    return None


def _whole(samples: memoryview, rate_hz: int, channels: int) -> Pcm | None:
    if not (1000 <= rate_hz <= 384_000 and 1 <= channels <= 8):
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
