"""Recordings of the real server through a real ASGI server with the tap in front: the numbers they must give."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys

import pytest

from helpers import recording_server
from helpers.paths import TESTS
from helpers.recording_server import CLOSE, call, serving
from helpers.scripted_tap import Clock, acted, read_events, recorded_steps, turn_numbers
from helpers.waiting import wait_until
from helpers.wire import EXPECTED, assert_as_expected
from omniwatch import events as ev
from omniwatch.tap import Tap

TOLERANCE_MS = 2.0


@pytest.mark.parametrize("name", EXPECTED)
def test_as_fast_as_they_pass_on_the_recorded_clock(tmp_path, name):
    path, clock = tmp_path / "events.jsonl", Clock()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await acted(recorded_steps(name), clock)(scope, receive, send)
            await send(CLOSE)

    with serving(Tap(app, environ={"OMNIWATCH_EVENTS": str(path)}, clock=clock, monotonic=clock)) as port:
        asyncio.run(call(port, name, paced=False))
    for got, expected in zip(turn_numbers(read_events(path)), EXPECTED[name], strict=True):
        assert_as_expected(got, expected)


def test_at_the_pace_they_were_made_at(tmp_path):
    """All at once, in real time. What a busy machine adds to the replay itself is known from the replaying side."""
    path, actual, port_file = tmp_path / "events.jsonl", tmp_path / "actual", tmp_path / "port"
    actual.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-m", recording_server.__name__, str(port_file), str(actual)],
        env={**os.environ, "OMNIWATCH_EVENTS": str(path), "PYTHONPATH": str(TESTS)},
    )
    try:
        wait_until(lambda: port_file.exists() and port_file.read_text())
        port = int(port_file.read_text())

        async def all_at_once() -> None:
            await asyncio.gather(*(call(port, name, paced=True) for name in EXPECTED))

        asyncio.run(all_at_once())
        wait_until(lambda: len(list(actual.iterdir())) == len(EXPECTED))
    finally:
        server.terminate()
        server.wait(20)
    by_stream: dict[str, list[ev.AnyEvent]] = {}
    for event in read_events(path):
        by_stream.setdefault(event.stream, []).append(event)
    streams = {kinds(events): events for events in by_stream.values()}
    for name, expected_turns in EXPECTED.items():
        done = read_events(actual / name)
        got = streams[kinds(done)]
        # Two stamps on one message, a few lines of code apart: what lies between them is the machine's doing.
        apart_ms = [abs(one.t - other.t) * 1000 for one, other in zip(noted(got), noted(done), strict=True)]
        assert statistics.median(apart_ms) < TOLERANCE_MS / 2
        for turn, replayed, expected in zip(
            turn_numbers(got), turn_numbers(done), expected_turns, strict=True
        ):
            assert turn.audio == pytest.approx(expected.audio, abs=0.06)
            for measured, paced, recorded in zip(turn, replayed, expected, strict=True):
                disturbed_ms = abs(paced - recorded) + 2 * max(apart_ms)
                assert abs(measured - recorded) <= TOLERANCE_MS + disturbed_ms


def noted(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The events that both sides note."""
    return [event for event in events if not isinstance(event, (ev.StreamStart, ev.StreamEnd, ev.Text))]


def kinds(events: list[ev.AnyEvent]) -> tuple[int, ...]:
    """What tells the recordings apart: how many events of which kind."""
    found = [type(event) for event in noted(events)]
    return tuple(found.count(kind) for kind in (ev.Video, ev.TurnStart, ev.Audio, ev.TurnEnd))


async def lifespan(receive, send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
