"""Act out a client and an application on both sides of the tap, on a clock that the application moves."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import struct
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from helpers.wire import WIRE, TurnNumbers, recording
from omniwatch import events as ev
from omniwatch.core.stream import Stream
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App, Message, Scope

VIDEO = "/v1/video/chat/stream"
CHAT = "/v1/chat/completions"
REALTIME = "/v1/realtime"


class Clock:
    """The time that the acted-out application has reached."""

    def __init__(self) -> None:
        self.t = 1000.0

    def __call__(self) -> float:
        return self.t


class Step(NamedTuple):
    """One message at a time in seconds: "in" from the client, "out" from the application."""

    t: float
    direction: str
    message: Message


def says(t: float, **message: Any) -> Step:
    """The client of a websocket says something."""
    return Step(t, "in", {"type": "websocket.receive", "text": json.dumps(message)})


def answers(t: float, **message: Any) -> Step:
    """The application answers on a websocket."""
    return Step(t, "out", {"type": "websocket.send", "text": json.dumps(message)})


def opening(t: float = 0.0) -> list[Step]:
    """A websocket is opened."""
    return [
        Step(t, "in", {"type": "websocket.connect"}),
        Step(t, "out", {"type": "websocket.accept", "subprotocol": None, "headers": [(b"x-own", b"1")]}),
    ]


def disconnect(t: float, code: int = 1001) -> Step:
    """The client goes away."""
    return Step(t, "in", {"type": "websocket.disconnect", "code": code})


def request(t: float, body: bytes | dict[str, Any], cut: int = 1) -> list[Step]:
    """A request body, in `cut` pieces."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = max(1, -(-len(data) // cut))
    pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    return [
        Step(t, "in", {"type": "http.request", "body": piece, "more_body": n + 1 < len(pieces)})
        for n, piece in enumerate(pieces)
    ]


def response(t: float, status: int = 200, content_type: str = "text/event-stream; charset=utf-8") -> Step:
    """The application begins to answer a request."""
    headers = [(b"content-type", content_type.encode()), (b"x-own", b"1")]
    return Step(t, "out", {"type": "http.response.start", "status": status, "headers": headers})


def body(t: float, data: bytes, more: bool = True) -> Step:
    """A piece of the answer."""
    return Step(t, "out", {"type": "http.response.body", "body": data, "more_body": more})


def recorded_steps(name: str) -> list[Step]:
    """The websocket session of a recording, as messages."""
    return [
        Step(
            float(record["mono"]),
            record["dir"],
            {
                "type": record["type"],
                **{k: record[k] for k in ("text", "subprotocol", "code") if k in record},
            },
        )
        for record in recording(name)
        if record["scope"] == "websocket"
    ]


def sse_recording() -> bytes:
    """One streamed chat with speech, as received: 7,896.875 ms in five chunks."""
    with gzip.open(WIRE / "chat-audio.sse.gz") as file:
        return file.read()


def wav(ms: float, data_size: int | None = None, rate: int = 24_000, extra: bytes = b"") -> str:
    """Base64 of a silent WAV file; its data chunk claims `data_size` if given. `extra` chunks come before it."""
    pcm = bytes(2 * round(ms * rate / 1000))
    stated = len(pcm) if data_size is None else data_size
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16) + extra
    head += struct.pack("<4sI", b"data", stated)
    whole = b"RIFF" + struct.pack("<I", 4 + len(head) + len(pcm)) + b"WAVE" + head + pcm
    return base64.b64encode(whole).decode()


def pcm16(ms: float, rate: int = 24_000) -> str:
    """Base64 of silent 16-bit samples."""
    return base64.b64encode(bytes(2 * round(ms * rate / 1000))).decode()


def acted(steps: Iterable[Step], clock: Clock | None = None) -> App:
    """The application's side of the steps."""
    clock = clock or Clock()

    async def app(
        scope: Scope, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Any]
    ) -> None:
        if scope["type"] == "lifespan":
            return
        for t, direction, message in steps:
            clock.t = t
            if direction == "in":
                await receive()
            else:
                await send(message)

    return app


class Server:
    """The server's side: gives the client's messages, keeps what is sent."""

    def __init__(self, incoming: Iterable[Message]) -> None:
        self.sent: list[Message] = []
        self._incoming = list(incoming)[::-1]

    async def receive(self) -> Message:
        return self._incoming.pop()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


class Tapped:
    """A tap whose event file is read back. What an application does comes with each connection's scope."""

    def __init__(self, directory: Path, **environ: str) -> None:
        self.path = directory / "events.jsonl"
        self.clock = Clock()
        self.tap = Tap(
            _run,
            environ={"OMNIWATCH_EVENTS": str(self.path), **environ},
            clock=self.clock,
            monotonic=self.clock,
        )

    def connect(self, steps: list[Step], path: str = VIDEO, **scope: Any) -> list[Message]:
        """Act out one connection; return what the server was given to send."""
        return asyncio.run(self.connection(steps, path, **scope))

    async def connection(self, steps: list[Step], path: str = VIDEO, **scope: Any) -> list[Message]:
        """Act out one connection, maybe beside others."""
        server = Server(step.message for step in steps if step.direction == "in")
        scope.setdefault("app", acted(steps, self.clock))
        await self.tap(scope_of(path, **scope), server.receive, server.send)
        return server.sent

    def post(self, path: str, body: bytes) -> list[Message]:
        """Send a request that the tap itself answers."""
        server = Server([{"type": "http.request", "body": body, "more_body": False}])
        asyncio.run(self.tap(scope_of(path, method="POST"), server.receive, server.send))
        return server.sent

    def events(self) -> list[ev.AnyEvent]:
        """End the server and return what the event file holds; everything in it is valid and none was lost."""
        server = Server([])
        asyncio.run(self.tap({"type": "lifespan"}, server.receive, server.send))
        return read_events(self.path)


async def _run(scope: Scope, receive: Any, send: Any) -> None:
    if scope["type"] != "lifespan":
        await scope["app"](scope, receive, send)


def read_events(path: Path) -> list[ev.AnyEvent]:
    """Return the events of a file, each of which must be valid."""
    found = ev.decode_lines(path.read_bytes()) if path.exists() else []
    assert not [event for event in found if isinstance(event, (ev.Invalid, ev.Unknown))]
    return found


def scope_of(path: str, **scope: Any) -> Scope:
    """A connection's scope as uvicorn gives it."""
    return {
        "type": "http" if path == CHAT or "method" in scope else "websocket",
        "method": "POST",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "client": ("192.0.2.7", 40000),
        **scope,
    }


def said(events: Iterable[ev.AnyEvent]) -> list[tuple[Any, ...]]:
    """Events as short tuples, without names of streams and writers, to be read and compared. `text` has tests of its own."""
    short: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, ev.Text):
            continue
        t = round(event.t, 3)
        if isinstance(event, ev.TurnStart):
            short.append((t, "turn", event.turn))
        elif isinstance(event, ev.Audio):
            short.append((t, "audio", event.turn, round(event.dur_ms, 3)))
        elif isinstance(event, ev.TurnEnd):
            short.append((t, "turn_end", event.turn, event.reason))
        elif isinstance(event, ev.Video):
            short.append((t, "video", event.pts_ms))
        elif isinstance(event, ev.Played):
            short.append((t, "played", event.turn, event.played_ms))
        elif isinstance(event, ev.StreamEnd):
            short.append((t, "stream_end", event.reason))
        else:
            short.append((t, ev.EV_OF[type(event)]))
    return short


def turn_numbers(events: Iterable[ev.AnyEvent]) -> list[TurnNumbers]:
    """Read one stream's events with a stream table of default settings; return the numbers of each of its turns."""
    table = StreamTable(Settings())
    totals = table.totals
    found: list[TurnNumbers] = []
    drifts: list[float] = []
    stream: Stream | None = None
    turn: ev.Turn | None = None
    sampled, audio_s, underrun_s = 0, 0.0, 0.0

    def close() -> None:
        nonlocal audio_s, underrun_s
        assert stream is not None
        found.append(
            TurnNumbers(
                stream.answers.rtt_ms or 0.0,
                (totals.audio_seconds - audio_s) * 1000,
                (totals.audio_underrun_seconds - underrun_s) * 1000,
                *((drifts[-1], min(drifts), max(drifts)) if drifts else (0.0, 0.0, 0.0)),
            )
        )
        drifts.clear()
        audio_s, underrun_s = totals.audio_seconds, totals.audio_underrun_seconds

    for event in events:
        if isinstance(event, ev.StreamEnd):
            break
        if isinstance(event, ev.Audio) and event.turn != turn:
            if turn is not None:
                close()
            turn = event.turn
        table.apply(event)
        stream = table.state.streams[event.stream]
        if sum(totals.codec_drift_abs.counts) > sampled:
            sampled += 1
            drifts.append(stream.drift_ms or 0.0)
    if turn is not None:
        close()
    return found
