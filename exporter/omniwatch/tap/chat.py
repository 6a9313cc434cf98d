"""`POST /v1/chat/completions`, streamed: one request is one turn of the client behind it."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from omniwatch.media import wav
from omniwatch.media.sse import DONE, Events
from omniwatch.tap import stream_name
from omniwatch.tap.asgi import Message, Scope
from omniwatch.tap.audio import duration_ms, is_silent
from omniwatch.tap.claim import CLAIM, Claim
from omniwatch.tap.observer import TapContext, with_header
from omniwatch.tap.partial_json import read
from omniwatch.tap.stream_events import Moment, StreamEvents, peer_of

PATH = "/v1/chat/completions"
STRANGER = (401, 403)
"""Statuses for whoever has no right to ask: no client of this server, so that no turn is made of it."""
BUSY = (408, 429)
"""Statuses below 500 that speak of the server and not of the request."""
MAX_EVENT_BYTES = 4 * 2**20
"""The longest event that is put together from pieces: over a minute of speech."""


class Format(msgspec.Struct):
    """How the speech is to be encoded."""

    format: str | None = None


class Request(msgspec.Struct):
    """What is used of a request."""

    user: str | None = None
    stream: bool | None = None
    modalities: list[str] | None = None
    audio: Format | None = None


class Delta(msgspec.Struct):
    """What a chunk adds to an answer."""

    content: str | None = None


class Waveform(msgspec.Struct):
    """What the server says of a chunk's audio; `frame_count` is samples of each channel."""

    format: str | None = None
    frame_count: int | None = None
    sample_rate_hz: float | None = None


class Choice(msgspec.Struct):
    """One of the answers that were asked for."""

    index: int = 0
    delta: Delta | None = None
    audio_metadata: Waveform | None = None


class Chunk(msgspec.Struct):
    """One server-sent event."""

    choices: list[Choice] = []
    modality: str | None = None
    error: Any = None


_request = msgspec.json.Decoder(Request)
_chunk = msgspec.json.Decoder(Chunk)


class ChatObserver:
    """One request. An answer without speech makes no turn, unless the request named audio among its modalities.

    A streamed answer that fails is a turn all the same, unless the request ruled speech out: it ends with "error" where the
    server answered with another status, or with none, and with "refused" where the status says that the request was wrong.
    """

    def __init__(self, scope: Scope, context: TapContext) -> None:
        self._context = context
        self._scope = scope
        self.line = context.ear.line(scope)
        self._claim: Claim = scope.get(CLAIM) or Claim()
        self._body: bytearray | None = bytearray()
        self._request: Request | None = None
        self._asked_at: Moment | None = None
        self._events: Events | None = None
        self._stream_events: StreamEvents | None = None
        self._turn = f"chat-{secrets.token_hex(8)}"
        self._voice: int | None = None
        """The choice that is listened to: the first one that speaks. All choices of a chunk carry the same audio."""
        self._claimed = ""
        self._report_id = ""
        self._text: tuple[int, Moment] | None = None
        """The length of the text so far, and when it began, while it is not known whether the answer speaks."""
        self._over = False

    def received(self, message: Message) -> None:
        """Take the request; it asks when it is complete."""
        if message["type"] == "http.disconnect":
            self._finish("aborted")
        elif message["type"] == "http.request" and self._asked_at is None:
            if self._body is not None:
                self._body += message.get("body", b"")
                if len(self._body) > stream_name.MAX_BODY_BYTES:
                    self._body = None
            if not message.get("more_body"):
                self._asked_at = self._context.now()
                self._request = None if self._body is None else read(_request, bytes(self._body))
                self._body = None

    def sent(self, message: Message) -> Message:
        """Take the answer."""
        if message["type"] == "http.response.body":
            if self._events is not None and not self._over:
                for data in self._events.feed(message.get("body", b"")):
                    self._take(data)
                if not message.get("more_body"):
                    self._finish("completed")
        elif message["type"] == "http.response.start":
            if self._begins_to_stream(message):
                return with_header(message, self._start())
            self._end_unheard(_reason_of(message["status"]))
        return message

    def over(self, reason: str) -> None:
        """See the end of the request."""
        if reason == "error" and self._stream_events is None:
            self._end_unheard("error")
        self._finish("aborted" if reason == "cancelled" else "failed")

    def _may_speak(self) -> bool:
        modalities = self._request.modalities if self._request else None
        return modalities is None or "audio" in modalities

    def _begins_to_stream(self, message: Message) -> bool:
        return (
            message["status"] == 200
            and self._may_speak()
            and self._asked_at is not None
            and not self._over
            and any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message.get("headers", ())
            )
        )

    def _start(self) -> str:
        """Name the stream; return the id for its client to report on it."""
        self._events = Events(MAX_EVENT_BYTES, strict=False)
        name = self._claim_name()
        self._claim.name(name, self._context.ear)
        self._stream_events = self._context.stream_events(name)
        self._stream_events.line = self.line
        if self._request and self._request.modalities:
            self._ask(self._stream_events, self._asked_at)
        self._report_id = self._context.reports.hand_out(self._stream_events)
        return self._report_id

    def _end_unheard(self, reason: str) -> None:
        """Report a streamed answer that fails before its first sound. Of any other it is unknown whether it holds speech."""
        streamed = self._request is None or self._request.stream
        if reason != "completed" and streamed and self._asked_at and self._may_speak() and not self._over:
            self._stream_events = self._context.stream_events(self._claim_name())
            # Asked as it ends: a question long past would seem a clock set back to another request of the same client.
            self._ask(self._stream_events, at=None)
        self._finish(reason)

    def _ask(self, stream_events: StreamEvents, at: Moment | None) -> None:
        stream_events.start(peer_of(self._scope), "chat", at=at)
        stream_events.ask(self._turn, at=at)
        if self._text:
            stream_events.write(self._turn, *self._text)
        self._claim.begin(stream_events.speech_of(self._turn))

    def _claim_name(self) -> str:
        user = self._request.user if self._request else None
        if stated := stream_name.stated_name(self._scope.get("headers", ()), user):
            return stated
        client = self._scope.get("client")
        address = str(client[0]) if client else "local"
        # Requests of one address at the same time are different listeners.
        name, taken, number = address, self._context.speaking_to, 1
        while name in taken:
            number += 1
            name = f"{address}#{number}"
        taken.add(name)
        self._claimed = name
        return name

    def _take(self, data: bytes) -> None:
        if len(data) < 16 and data.strip() == DONE:
            self._finish("completed")
            return
        chunk = read(_chunk, data)
        stream_events = self._stream_events
        if chunk is None or stream_events is None or self._over:
            return
        if chunk.error is not None:
            self._finish("failed")
        elif chunk.modality == "audio":
            for choice in chunk.choices:
                dur_ms = self._duration_ms(choice)
                if dur_ms <= 0 or self._voice not in (None, choice.index):
                    continue
                self._voice = choice.index
                if stream_events.turn is None:
                    self._ask(stream_events, self._asked_at)
                content = choice.delta.content if choice.delta else None
                stream_events.speak(self._turn, dur_ms, is_silent(content or ""))
        else:
            self._write(stream_events, chunk)

    def _write(self, stream_events: StreamEvents, chunk: Chunk) -> None:
        listened = self._voice or 0
        texts = (c.delta.content for c in chunk.choices if c.delta and c.index == listened)
        chars = sum(len(text) for text in texts if text)
        if not chars:
            return
        if stream_events.turn is None:
            before, at = self._text or (0, self._context.now())
            self._text = before + chars, at
        else:
            stream_events.write(self._turn, chars)

    def _duration_ms(self, choice: Choice) -> float:
        stated = choice.audio_metadata or Waveform()
        samples, rate_hz = stated.frame_count or 0, stated.sample_rate_hz or 0.0
        if samples > 0 and wav.is_rate(rate_hz):
            return samples / rate_hz * 1000.0
        content = choice.delta.content if choice.delta else None
        encoding = self._request.audio.format if self._request and self._request.audio else None
        return duration_ms(content, encoding) if content else 0.0

    def _finish(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        if self.line and reason == "completed":
            self.line.is_whole = True
        if self._stream_events:
            if reason == "failed" and self._stream_events.turn is None:
                self._ask(self._stream_events, at=None)
            self._stream_events.finish_all(reason)
        self._context.speaking_to.discard(self._claimed)
        self._context.reports.set_aside(self._report_id)


def _reason_of(status: int) -> str:
    """Return why a turn ends that is answered by a status and no speech."""
    if status >= 500 or status in BUSY:
        return "error"
    return "refused" if status >= 400 and status not in STRANGER else "completed"
