"""`POST /omniwatch/report`: receive a client's own word on its turn, addressed by an unguessable id."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from omniwatch.events import Turn
from omniwatch.system.token_bucket import TokenBucket
from omniwatch.tap.asgi import Receive, Scope, Send
from omniwatch.tap.stream_events import MAX_PTS_MS, StreamEvents

PATH = "/omniwatch/report"
MAX_BODY_BYTES = 1024
MAX_LEFT = 4096
"""Ids of chats that are over, whose client may still report what it heard; they make room for no live one."""
ID_LENGTH = (16, 64)
PER_STREAM = (1.0, 5.0)
"""Reports a second of one stream, and how many may come at once."""
IN_ALL = (200.0, 200.0)

Reported = Annotated[float, Meta(ge=0, le=MAX_PTS_MS)]


class Report(msgspec.Struct):
    """The body. `turn` is the latest one unless given. At least one of the three values is there, in ms.

    `rtt_ms` is text sent to first speech received, `played_ms` how much of the turn the client has played, `underrun_ms` for
    how long in all it has had nothing to play. `source` says where the client has the last two from.
    """

    stream: str
    rtt_ms: Annotated[float, Meta(ge=0, le=600_000)] | None = None
    played_ms: Reported | None = None
    underrun_ms: Reported | None = None
    source: Literal["player", "framework", "model"] = "player"
    turn: Turn | None = None


_decoder = msgspec.json.Decoder(Report)


class Known(NamedTuple):
    """What an id stands for."""

    stream_events: StreamEvents
    bucket: TokenBucket
    is_chosen: bool
    """By a client, and not by the server."""


class Reports:
    """The ids under which streams can be reported on, and the endpoint that takes the reports.

    Live streams keep theirs, however many there are: a connection has three.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._streams: dict[str, Known] = {}
        self._left: OrderedDict[str, Known] = OrderedDict()
        self._all = TokenBucket(*IN_ALL, clock())

    def hand_out(self, stream_events: StreamEvents) -> str:
        """Return a new id for the stream."""
        token = secrets.token_urlsafe(24)
        self.admit(token, stream_events)
        return token

    def admit(self, token: str, stream_events: StreamEvents, *, is_chosen: bool = False) -> None:
        """Let a stream be known by an id of the server's, or one that its client has chosen.

        One too short to be secret is none, nor is one taken, unless a client chose what the server now gives to another.
        """
        taken = self._known(token)
        is_free = taken is None or (taken.is_chosen and not is_chosen)
        if is_free and ID_LENGTH[0] <= len(token) <= ID_LENGTH[1]:
            bucket = TokenBucket(*PER_STREAM, self._clock())
            self._streams[token] = Known(stream_events, bucket, is_chosen)

    def set_aside(self, token: str) -> None:
        """Note that a chat is over: its id is kept for a late report, apart from those in use."""
        if token in self._streams:
            self._left[token] = self._streams.pop(token)
            if len(self._left) > MAX_LEFT:
                self._left.popitem(last=False)

    def hand_on(self, token: str, before: StreamEvents, after: StreamEvents) -> None:
        """Let an id of the one stream be the other's."""
        known = self._streams.get(token)
        if known and known.stream_events is before:
            self._streams[token] = known._replace(stream_events=after)

    def find(self, token: str) -> StreamEvents | None:
        """Return the stream that an id stands for."""
        known = self._known(token)
        return known.stream_events if known else None

    def _known(self, token: str) -> Known | None:
        return self._streams.get(token) or self._left.get(token)

    def withdraw(self, token: str, stream_events: StreamEvents) -> None:
        """Forget an id of the stream."""
        known = self._streams.get(token)
        if known and known.stream_events is stream_events:
            del self._streams[token]

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST: 204, or 400, 404, 409, 413, 429 with a line that says why."""
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                await _answer(send, 413, f"more than {MAX_BODY_BYTES} bytes")
                return
            if not message.get("more_body"):
                break
        status, why = self._take(body)
        await _answer(send, status, why)

    def _take(self, body: bytes) -> tuple[int, str]:
        try:
            report = _decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return 400, str(error)
        known = self._known(report.stream)
        if known is None:
            return 404, "no such stream"
        if report.rtt_ms is report.played_ms is report.underrun_ms is None:
            return 400, "expected rtt_ms, played_ms or underrun_ms"
        now = self._clock()
        if not (known.bucket.take(now) and self._all.take(now)):
            return 429, "too many reports"
        why = known.stream_events.report(
            report.turn, report.rtt_ms, report.played_ms, report.underrun_ms, report.source
        )
        return (409, why) if why else (204, "")


async def _answer(send: Send, status: int, why: str) -> None:
    body = f"{why}\n".encode() if why else b""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if status == 204:
        headers = []
    elif status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
