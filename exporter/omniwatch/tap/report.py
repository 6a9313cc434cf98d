"""`POST /omniwatch/rtt`: a client's own measurement, addressed by an id that nobody can guess."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from omniwatch.events import Turn
from omniwatch.tap.listener import Listener
from omniwatch.tap.wire import Receive, Scope, Send

PATH = "/omniwatch/rtt"
MAX_BODY_BYTES = 1024
MAX_IDS = 4096
"""Ids in use; beyond it the one handed out longest ago is forgotten."""
ID_LENGTH = (16, 64)
PER_STREAM = (1.0, 5.0)
"""Reports a second of one stream, and how many may come at once."""
IN_ALL = (50.0, 100.0)


class Report(msgspec.Struct):
    """The body: `turn` is the latest one unless given; `rtt_ms` is text sent to first speech received, in ms."""

    stream: str
    rtt_ms: Annotated[float, Meta(ge=0, le=600_000)]
    turn: Turn | None = None


_decoder = msgspec.json.Decoder(Report)


class Bucket:
    """A rate: `rate` a second on average, `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._t = now

    def take(self, now: float) -> bool:
        """Whether one more is allowed now."""
        self._left = min(self._burst, self._left + (now - self._t) * self._rate)
        self._t = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Reports:
    """The ids under which streams can be reported on, and the endpoint that takes the reports."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._streams: OrderedDict[str, tuple[Listener, Bucket]] = OrderedDict()
        self._all = Bucket(*IN_ALL, clock())

    def hand_out(self, listener: Listener) -> str:
        """Return a new id for the stream."""
        token = secrets.token_urlsafe(24)
        self.admit(token, listener)
        return token

    def admit(self, token: str, listener: Listener) -> None:
        """Let a stream be known by an id of the server's or the client's; one too short to be secret, or taken, is not."""
        if ID_LENGTH[0] <= len(token) <= ID_LENGTH[1] and token not in self._streams:
            self._streams[token] = listener, Bucket(*PER_STREAM, self._clock())
            if len(self._streams) > MAX_IDS:
                self._streams.popitem(last=False)

    def withdraw(self, token: str, listener: Listener) -> None:
        """Forget an id of the stream."""
        if self._streams.get(token, (None,))[0] is listener:
            del self._streams[token]

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST: 204, or 400, 404, 413, 429 with a line that says why."""
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
        listener, bucket = self._streams.get(report.stream, (None, self._all))
        if listener is None:
            return 404, "no such stream"
        now = self._clock()
        if not (bucket.take(now) and self._all.take(now)):
            return 429, "too many reports"
        listener.measured(report.turn, report.rtt_ms)
        return 204, ""


async def _answer(send: Send, status: int, why: str) -> None:
    body = f"{why}\n".encode() if why else b""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if status == 204:
        headers = []
    elif status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
