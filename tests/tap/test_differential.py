"""With the tap or without it: the application receives the same, the server is given the same to send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.differential import assert_balanced, compare, compare_all, nothing, tap_with
from helpers.listening import BROKEN, asked_through
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
    sse_recording,
)
from helpers.wire import EXPECTED, WIRE
from omniwatch import events as ev
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App
from omniwatch.tap.ear_thread import open_netlink


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


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.slow
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
@pytest.mark.slow
def test_a_thousand_generated_connections_pass_unchanged(tmp_path, fault):
    cases = [generated(seed) for seed in range(GENERATED)]
    asyncio.run(compare_all(cases, FAULTS[fault](tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("netlink", ["sound", *BROKEN])
def test_connections_pass_unchanged_whatever_the_ear_is_told(tmp_path, netlink):
    path = tmp_path / "events.jsonl"

    async def run(tap: Tap, within: Callable[[App], App]) -> None:
        for seed in range(GENERATED // 10):
            await compare(generated(seed), tap, within)
        for steps_path, steps in RECORDINGS.values():
            await compare(Case(steps_path, steps), tap, within)
        tap.app = nothing
        await tap({"type": "lifespan"}, None, None)

    with asked_through(BROKEN.get(netlink, open_netlink)) as within:
        asyncio.run(run(tap_with(path, OMNIWATCH_EAR="kernel"), within))
    events = read_events(path)
    assert_balanced(events)
    assert "kernel" in {event.ear for event in events if isinstance(event, ev.TurnStart)}, "the ear was on"


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
