"""One connection twice, bare and behind the middleware: the application and the client must not see a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.random_asgi import Case
from helpers.scripted_tap import CHAT, scope_of
from omniwatch import events as ev
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App, Message
from omniwatch.tap.observer import STREAM_HEADER


class GoneError(OSError):
    """The client is no longer there to be sent to."""


class BrokenError(RuntimeError):
    """The application's own failure."""


LEAVING: dict[bool, Message] = {
    True: {"type": "http.disconnect"},
    False: {"type": "websocket.disconnect", "code": 1006},
}


class Side:
    """One run of a case: what the application received, what the server was given, and how it ended."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.received: list[Message] = []
        self.sent: list[Message] = []
        self.ended: tuple[str, str] | None = None
        self._at = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        for number, step in enumerate(self.case.steps):
            if number == self.case.fails:
                raise BrokenError(number)
            self._at = number
            if step.direction == "out":
                assert await send(step.message) is None
                continue
            message = await receive()
            self.received.append(message)
            if message["type"].endswith("disconnect"):
                return

    async def receive(self) -> Message:
        if self._at >= self.case.gone:
            return LEAVING[self.case.path == CHAT]
        return self.case.steps[self._at].message

    async def send(self, message: Message) -> None:
        if self._at >= self.case.gone:
            raise GoneError(self._at)
        self.sent.append(message)

    async def run(self, wrap: Callable[[App], App]) -> Side:
        try:
            await wrap(self.app)(scope_of(self.case.path), self.receive, self.send)
        except (GoneError, BrokenError) as error:
            self.ended = type(error).__name__, str(error)
        return self


def unmarked(message: Message) -> Message:
    """A message without the one header that the tap adds."""
    headers = [header for header in message.get("headers", ()) if header[0] != STREAM_HEADER]
    return {name: value for name, value in message.items() if name != "headers"} | (
        {"headers": headers} if headers else {}
    )


async def compare(case: Case, tap: Tap, before: Callable[[App], App] = lambda app: app) -> None:
    """Run a case bare and behind the tap, which may have more middleware before it."""
    bare = await Side(case).run(lambda app: app)

    def tapped(app: App) -> App:
        tap.app = app
        return before(tap)

    behind = await Side(case).run(tapped)
    assert behind.ended == bare.ended
    assert behind.received == bare.received
    assert all(one is other for one, other in zip(behind.received, bare.received, strict=True))
    assert [unmarked(message) for message in behind.sent] == bare.sent
    for message, original in zip(behind.sent, bare.sent, strict=True):
        added = Counter(message.get("headers", ())) - Counter(original.get("headers", ()))
        assert [name for name, _ in added] in ([], [STREAM_HEADER])
        if not added:
            assert message is original, "passed on as it is, not a copy"


async def compare_all(cases: list[Case], tap: Tap) -> None:
    for case in cases:
        await compare(case, tap)


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that only ends, so that the tap writes what is left."""


def tap_with(path: Path, **environ: str) -> Tap:
    return Tap(nothing, environ={"OMNIWATCH_EVENTS": str(path), **environ})


def assert_balanced(events: list[ev.AnyEvent]) -> None:
    """Turns that were begun are ended, once, before their stream is; nothing is said of a stream not begun."""
    live: dict[str, str | None] = {}
    turns: set[tuple[str, ev.Turn | None]] = set()
    for event in events:
        if isinstance(event, ev.StreamStart):
            live[event.stream] = event.kind
        if isinstance(event, ev.Arrived):
            # The kernel is asked for a while after the server is done.
            continue
        assert event.stream in live, event
        if isinstance(event, (ev.TurnStart, ev.Audio)):
            turns.add((event.stream, event.turn))
        elif isinstance(event, ev.TurnEnd):
            turns.remove((event.stream, event.turn))
        elif isinstance(event, ev.StreamEnd):
            del live[event.stream]
            assert event.stream not in {stream for stream, _ in turns}
    assert turns == set()
    assert set(live.values()) <= {"chat"}, "a chat client's stream goes stale, it does not end"
