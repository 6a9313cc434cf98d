"""One run over a real path: a server, a listener, what really happened, and what the sidecar's code makes of the events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from omniwatch import events
from omniwatch.core.streams import StreamTable
from omniwatch.desk.link.real import RealPath
from omniwatch.settings import Settings
from suites.path.listening import Listening, Turn
from suites.path.paging import Devices
from suites.path.speaking import Speaking
from suites.path.truth import Heard

HERE = Path(__file__).parent
TRIES = 3
"""Runs on a busy machine that are thrown away before the suite fails."""
FIRST = ("chrt", "--rr", "1")
"""What is measured runs before all else that the machine has to do, as the carrier does."""
LOOK_S = 0.1
PAST_MS = 60.0
AFTER_S = 2.0
"""How long a turn is looked at after it was heard."""


class BusyError(RuntimeError):
    """The carrier came late too often, in every try."""


class Look(NamedTuple):
    """What was shown at one moment, and what was true at the moment that it speaks of."""

    t: float
    shown_ms: float
    true_ms: float


class Judged(NamedTuple):
    """One turn, as shown and as heard, in seconds; every look at its drift; how long its question was on the way."""

    scenario: str
    kind: str
    underrun_shown_s: float
    underrun_true_s: float
    first_shown_s: float
    first_true_s: float
    question_s: float
    looks: list[Look]
    past_s: float
    """For how long in a row the listener was out of sync, past PAST_MS."""


class Run(NamedTuple):
    """What the listener had, and what the server wrote meanwhile."""

    scenario: str
    listening: Listening
    turns: list[Turn]
    written: list[events.Event]
    device: str = ""


def run(
    scenario: str,
    seed: int,
    speaking: Speaking,
    listening: Listening,
    *,
    devices: Devices | None = None,
    name: str = "",
    leaves_s: float = 0.0,
) -> Run:
    """Run a scenario of this folder until the carrier kept its times. Raises BusyError.

    `devices` follow its server as `name` and the try. After `leaves_s` nothing passes any more.
    """
    for attempt in range(TRIES):
        with ExitStack() as stack:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "events.jsonl")
            device = f"{name}-{attempt}"
            if devices is not None:
                file.touch()
                stack.enter_context(devices.watching(device, file))
            with RealPath(str(HERE / "scenarios" / f"{scenario}.yaml"), seed) as path:
                if leaves_s:
                    threading.Timer(leaves_s, path.leave).start()
                turns = listen(
                    path,
                    msgspec.structs.replace(speaking, events=str(file), host=path.address),
                    msgspec.structs.replace(listening, host=path.address),
                )
            if path.believable:
                lines = file.read_bytes().splitlines()
                return Run(scenario, listening, turns, [events.decode(line) for line in lines], device)
        sys.stderr.write(f"{scenario}, try {attempt + 1}: thrown away, {path.counts}\n")
    raise BusyError(f"{scenario}: the machine was too busy {TRIES} times")


def listen(path: RealPath, speaking: Speaking, listening: Listening) -> list[Turn]:
    """Have a server speak and its listeners listen over a path; return their turns."""

    def command(program: str, plan: msgspec.Struct) -> list[str]:
        return [*FIRST, sys.executable, str(HERE / program), json.dumps(msgspec.to_builtins(plan))]

    server = subprocess.Popen(
        path.within(path.server, *command("speaking.py", speaking)), stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        done = subprocess.run(
            path.within(path.client, *command("listening.py", listening)),
            stdout=subprocess.PIPE,
            check=True,
            timeout=30 + listening.turns * (listening.turn_timeout_s + listening.pause_s),
        )
    finally:
        server.terminate()
        server.wait()
    return [msgspec.json.decode(line, type=Turn) for line in done.stdout.splitlines()]


def by_sent(written: list[events.Event]) -> list[events.Event]:
    """Return the events of a server that does not ask its kernel."""
    return [
        msgspec.structs.replace(event, ear=None) if isinstance(event, events.TurnStart) else event
        for event in written
        if not isinstance(event, events.Arrived)
    ]


def judge(one: Run) -> list[Judged]:
    """Read the events as the sidecar would have, ten times a second, and hold what it shows against the truth."""
    table = StreamTable(Settings())
    has_picture = one.listening.kind in ("websocket", "deflate", "tls")
    rate = 1 + one.listening.camera_ppm / 1e6 if has_picture else None
    asked = [event.t for event in one.written if isinstance(event, events.TurnStart)]
    if len(asked) != len(one.turns):
        raise ValueError(f"{one.scenario}: {len(one.turns)} turns were heard, {len(asked)} written")
    coming = iter(sorted(one.written, key=lambda event: event.t))
    following = next(coming, None)
    judged = []
    for number, turn in enumerate(one.turns):
        while following is not None and following.t < turn.asked_t:
            table.apply(following)
            following = next(coming, None)
        table.advance(turn.asked_t)
        if turn.error or not turn.arrivals:
            continue
        heard = Heard(turn.arrivals, rate)
        until = heard.end_t + AFTER_S
        if number + 1 < len(one.turns):
            until = min(until, one.turns[number + 1].asked_t)
        underrun_s, first_s = table.totals.audio_underrun_seconds, table.totals.token_rtt["server"].sum
        looks, now = [], turn.asked_t
        while now < until:
            now = min(now + LOOK_S, until)
            while following is not None and following.t <= now:
                table.apply(following)
                following = next(coming, None)
            table.advance(now)
            for stream in table.streams:
                shown_ms, moment = table.drift_ms(stream, now), stream.known_until(now)
                if shown_ms is not None and heard.start_t <= moment <= heard.end_t:
                    looks.append(Look(now, shown_ms, heard.drift_ms(moment)))
        judged.append(
            Judged(
                scenario=one.scenario,
                kind=one.listening.kind,
                underrun_shown_s=table.totals.audio_underrun_seconds - underrun_s,
                underrun_true_s=heard.underrun_s,
                first_shown_s=table.totals.token_rtt["server"].sum - first_s,
                first_true_s=turn.arrivals[0][0] - turn.asked_t,
                question_s=asked[number] - turn.asked_t,
                looks=looks,
                past_s=heard.past_s(PAST_MS),
            )
        )
    return judged
