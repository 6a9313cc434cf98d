"""Encode a turn for the wire: binary frames, or server-sent events with ids. One encoder serves one turn."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from omniwatch import frames
from omniwatch.frames import Kind
from omniwatch.media import sse, wav
from omniwatch.resume import opus, speech
from omniwatch.resume.speech import Chat, Cutter


class Piece(NamedTuple):
    """What takes one place in the turn, before it is given its frame id and part."""

    kind: Kind
    payload: bytes | memoryview


class Encoder(Protocol):
    """Turns the model server's events into pieces, and pieces into bytes on the wire."""

    media_type: str
    is_slow: bool
    """Whether `pieces` computes for long, and belongs in a thread."""
    done: bool
    """Whether the model server has said that the turn is whole."""

    def pieces(self, raw: bytes) -> Iterator[Piece]:
        """Yield what one event's data says."""

    def rest(self) -> Iterator[Piece]:
        """Yield what was held back, when the model server has ended."""

    def wire(self, piece: Piece, frame_id: int, part: int) -> bytes:
        """Return the piece's bytes at its place in the turn."""

    def ended(self, reason: str, frame_id: int, part: int) -> bytes:
        """Return the bytes that say that nothing follows and why; b"" where the turn has said so itself.

        Part 0 is no place in the turn: only this connection ends.
        """

    def idle(self, frame_id: int) -> bytes:
        """Return bytes that say nothing but that the stream is alive."""


class BinaryEncoder:
    """Frames of frames.py: speech as PCM16 or Opus, text as text, all else as the model server's JSON.

    `opus_bitrate` is what a client asked for that decodes Opus; None for one that does not. Speech that does not fit Opus
    is PCM16 all the same: the format frame says which it is.
    """

    media_type = frames.MEDIA_TYPE

    def __init__(self, frame_ms: float, opus_bitrate: int | None = None) -> None:
        self._cutter = Cutter(frame_ms)
        self._opus_bitrate = opus_bitrate
        self._packets: opus.PacketEncoder | None = None
        self.is_slow = opus_bitrate is not None
        self.done = False

    def pieces(self, raw: bytes) -> Iterator[Piece]:
        """Yield what one event's data says."""
        if raw == sse.DONE:
            self.done = True
            yield from self.rest()
            return
        chat = speech.read(raw)
        text = chat.text
        if text is not None:
            yield Piece(Kind.TEXT, text.encode())
        elif chat.pcm is None:
            yield Piece(Kind.EVENT, raw)
        else:
            yield from self._speech(chat, chat.pcm)

    def _speech(self, chat: Chat, pcm: speech.Pcm) -> Iterator[Piece]:
        if self._cutter.format != (pcm.rate_hz, pcm.channels):
            yield from self.rest()
            yield Piece(Kind.FORMAT, json.dumps(self._begin(pcm.rate_hz, pcm.channels)).encode())
        for samples in self._cutter.push(pcm):
            yield self._frame(samples)
        if chat.extra:
            if chat.body["choices"][0].get("finish_reason"):
                yield from self.rest()
            yield Piece(Kind.EVENT, msgspec.json.encode(_with_content(chat.body, "")))

    def _begin(self, rate_hz: int, channels: int) -> dict[str, Any]:
        """Choose how speech of this format is sent; return what the format frame says."""
        said = {
            "codec": "pcm16",
            "sample_rate_hz": rate_hz,
            "channels": channels,
            "frame_samples": round(rate_hz * self._cutter.frame_ms / 1000),
        }
        self._packets = None
        if self._opus_bitrate and opus.fits(rate_hz, channels, self._cutter.frame_ms):
            self._packets = opus.PacketEncoder(rate_hz, channels, self._cutter.frame_ms, self._opus_bitrate)
            said |= {
                "codec": "opus",
                "bitrate": self._opus_bitrate,
                "lookahead_ms": self._packets.lookahead_ms,
            }
        return said

    def _frame(self, samples: memoryview) -> Piece:
        return Piece(Kind.SPEECH, self._packets.encode(samples) if self._packets else samples)

    def rest(self) -> Iterator[Piece]:
        """Yield what was held back, when the model server has ended."""
        left = self._cutter.flush()
        if left is not None:
            yield self._frame(left)
        last = self._packets.rest() if self._packets else None
        if last is not None:
            yield Piece(Kind.SPEECH, last)

    def wire(self, piece: Piece, frame_id: int, part: int) -> bytes:
        """Return the piece's frame."""
        return frames.encode(frame_id, piece.payload, kind=piece.kind, part=part)

    def ended(self, reason: str, frame_id: int, part: int) -> bytes:
        """Return the frame that says why nothing follows."""
        return frames.encode(frame_id, json.dumps({"reason": reason}).encode(), kind=Kind.END, part=part)

    def idle(self, frame_id: int) -> bytes:
        """Return a frame without payload."""
        return frames.encode(frame_id, b"", kind=Kind.IDLE)


class SseEncoder:
    """Server-sent events as the model server's own, speech cut to one frame an event; `id` is "frame" or "frame.part"."""

    media_type = "text/event-stream"
    is_slow = False

    def __init__(self, frame_ms: float) -> None:
        self._cutter = Cutter(frame_ms)
        self._last: dict[str, Any] = {}
        self.done = False

    def pieces(self, raw: bytes) -> Iterator[Piece]:
        """Yield what one event's data says."""
        if raw == sse.DONE:
            self.done = True
            yield from self.rest()
            yield Piece(Kind.EVENT, raw)
            return
        chat = speech.read(raw)
        if chat.pcm is None:
            yield Piece(Kind.EVENT, raw)
            return
        if self._cutter.format != (chat.pcm.rate_hz, chat.pcm.channels):
            yield from self.rest()
        # An end and what was used belong to the whole event: they stay with its last frame.
        self._last = _with_content(chat.body, "", finish_reason=None) | {"usage": None}
        cut = list(self._cutter.push(chat.pcm))
        if chat.body["choices"][0].get("finish_reason"):
            left = self._cutter.flush()
            cut += [left] if left is not None else []
        if not chat.extra:
            yield from (self._event(self._last, samples) for samples in cut)
        elif cut:
            yield from (self._event(self._last, samples) for samples in cut[:-1])
            yield self._event(chat.body, cut[-1])
        else:
            # The audio is still buffered. Send zero-length audio: plain SSE clients fail when the field is missing.
            yield Piece(Kind.EVENT, self._event(chat.body, memoryview(b"")).payload)

    def rest(self) -> Iterator[Piece]:
        """Yield what was held back, when the model server has ended."""
        left = self._cutter.flush()
        if left is not None:
            yield self._event(self._last, left)

    def _event(self, body: dict[str, Any], samples: memoryview) -> Piece:
        rate, channels = self._cutter.format or (0, 0)
        sound = b"".join((wav.header(rate, channels, len(samples)), samples))
        count = len(samples) // (2 * channels)
        said = _with_content(body, b2a_base64(sound, newline=False).decode(), frame_count=count)
        return Piece(Kind.SPEECH, msgspec.json.encode(said))

    def wire(self, piece: Piece, frame_id: int, part: int) -> bytes:
        """Return the piece's event."""
        place = b"id: %d.%d\n" % (frame_id, part) if part else b"id: %d\n" % frame_id
        lines = bytes(piece.payload).replace(b"\n", b"\ndata: ")
        return b"".join((place, b"data: ", lines, b"\n\n"))

    def ended(self, reason: str, frame_id: int, part: int) -> bytes:
        """Return an event named "end", unless the turn has said "[DONE]" and that was all."""
        if self.done and reason == "done":
            return b""
        place = b"id: %d.%d\n" % (frame_id, part) if part else b""
        return b'%sevent: end\ndata: {"reason": "%s"}\n\n' % (place, reason.encode())

    def idle(self, frame_id: int) -> bytes:
        """Return a comment."""
        return b": still here\n\n"


def _with_content(body: dict[str, Any], content: str, **changed: Any) -> dict[str, Any]:
    """Return the event with other content, and other values of its choice's or its audio_metadata's fields."""
    choice = body["choices"][0]
    choice = choice | {"delta": choice["delta"] | {"content": content}}
    for name, value in changed.items():
        meta = choice.get("audio_metadata")
        if name in choice:
            choice[name] = value
        elif isinstance(meta, dict) and name in meta:
            choice["audio_metadata"] = meta | {name: value}
    return body | {"choices": [choice]}
