"""With the tap or without it: the application receives the same, the server is given the same to send."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.random_asgi import Case, generated
from helpers.scripted_tap import (
    CHAT,
    VIDEO,
    Step,
    body,
    read_events,
    recorded_steps,
    request,
    response,
    scope_of,
    sse_recording,
)
from helpers.wire import EXPECTED, WIRE
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


async def compare(case: Case, tap: Tap) -> None:
    """Run a case bare and behind the tap."""
    bare = await Side(case).run(lambda app: app)

    def tapped(app: App) -> App:
        tap.app = app
        return tap

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


def recordings() -> dict[str, tuple[str, list[Step]]]:
    """Every recording, as the steps of a connection."""
    sse = sse_recording()
    text = (WIRE / "chat-text.sse").read_bytes()
    asked = request(0, {"stream": True, "messages": [], "modalities": ["text", "audio"]})
    found = {name: (VIDEO, recorded_steps(name)) for name in EXPECTED}
    for name, whole, size in (("chat", sse, 100_000), ("chat-cut", sse, 999), ("chat-text", text, 300)):
        pieces = [body(1, whole[at : at + size]) for at in range(0, len(whole), size)]
        found[name] = CHAT, [*asked, response(0), *pieces, body(2, b"", more=False)]
    return found


RECORDINGS = recordings()


def tap_with(path: Path, **environ: str) -> Tap:
    return Tap(nothing, environ={"OMNIWATCH_EVENTS": str(path), **environ})


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_pass_unchanged_wherever_the_client_leaves(tmp_path, name):
    path, steps = RECORDINGS[name]
    every = max(1, len(steps) // 300)
    cases = [Case(path, steps, gone) for gone in (*range(0, len(steps), every), len(steps))]
    asyncio.run(compare_all(cases, tap_with(tmp_path / "events.jsonl")))


FAULTS: dict[str, Callable[[Path], Tap]] = {
    "none": lambda tmp_path: tap_with(tmp_path / "events.jsonl"),
    "unwritable": lambda tmp_path: tap_with(Path("/proc/version")),
    "full": lambda tmp_path: tap_with(Path("/dev/full")),
    "missing": lambda tmp_path: tap_with(tmp_path / "no" / "events.jsonl"),
    "directory": tap_with,
    "clock": lambda tmp_path: Tap(nothing, environ={}, clock=lambda: 1 // 0),
}
"""What can go wrong on the tap's side; a clock that raises fails in the midst of every watch."""


@pytest.mark.parametrize("fault", FAULTS)
def test_recordings_pass_unchanged_under_faults(tmp_path, fault):
    cases = [Case(path, steps) for path, steps in RECORDINGS.values()]
    asyncio.run(compare_all(cases, FAULTS[fault](tmp_path)))


GENERATED = 1000


@pytest.mark.parametrize("fault", FAULTS)
def test_a_thousand_generated_connections_pass_unchanged(tmp_path, fault):
    cases = [generated(seed) for seed in range(GENERATED)]
    asyncio.run(compare_all(cases, FAULTS[fault](tmp_path)))


def test_what_was_generated_makes_events_that_are_valid_and_end_what_they_begin(tmp_path):
    tap = tap_with(tmp_path / "events.jsonl")

    async def run() -> None:
        await compare_all([generated(seed) for seed in range(GENERATED)], tap)
        tap.app = nothing
        await tap({"type": "lifespan"}, None, None)

    asyncio.run(run())
    events = read_events(tmp_path / "events.jsonl")
    assert {type(event) for event in events} >= {
        ev.StreamStart,
        ev.Video,
        ev.TurnStart,
        ev.Audio,
        ev.TurnEnd,
        ev.Played,
        ev.Resume,
    }
    assert_balanced(events)


@pytest.mark.parametrize("name", ["default-chunks", "chat"])
def test_wherever_the_client_leaves_what_began_is_ended(tmp_path, name):
    path, steps = RECORDINGS[name]
    tap = tap_with(tmp_path / "events.jsonl")

    async def run() -> None:
        await compare_all([Case(path, steps, gone) for gone in range(len(steps))], tap)
        tap.app = nothing
        await tap({"type": "lifespan"}, None, None)

    asyncio.run(run())
    assert_balanced(read_events(tmp_path / "events.jsonl"))


def assert_balanced(events: list[ev.AnyEvent]) -> None:
    """Turns that were begun are ended, once, before their stream is; nothing is said of a stream not begun."""
    live: dict[str, str | None] = {}
    turns: set[tuple[str, ev.Turn | None]] = set()
    for event in events:
        if isinstance(event, ev.StreamStart):
            live[event.stream] = event.kind
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
