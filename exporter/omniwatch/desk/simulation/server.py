"""Simulate a sliced-model server and its clients as processes on one virtual clock.

A process is a generator: it yields events as they happen and, to wait, the time (a float) it goes on at. Times in here
are seconds from the start of the run; `events` puts them on the server's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import attrgetter

from omniwatch.desk.simulation.link import handovers
from omniwatch.desk.simulation.processes import fault, picture, voice
from omniwatch.desk.simulation.scenarios import Scenario, SimulatedListener
from omniwatch.desk.simulation.session import Process, Session
from omniwatch.events import Event, StreamEnd, StreamStart


def events(
    scenario: Scenario, seed: int = 0, start_t: float = 0.0, duration_s: float | None = None
) -> Iterator[Event]:
    """Yield a scenario's events in the order of `t`, `start_t` being the first; endless without `duration_s`.

    The same arguments give the same events. They carry no `w` and `n`: whoever writes them numbers them.
    """
    sessions = [
        _session(scenario, listener, f"{scenario.name}-{seed}-{number}", seed)
        for number, listener in enumerate(scenario.listeners)
    ]
    for event in heapq.merge(*sessions, key=attrgetter("t")):
        if duration_s is not None and event.t >= duration_s:
            return
        event.t = round(start_t + event.t, 6)
        yield event


def _session(scenario: Scenario, listener: SimulatedListener, stream: str, seed: int) -> Iterator[Event]:
    """All of one stream, from its start to its end."""
    joins_s, leaves_s = listener.joins_s, listener.leaves_s
    peer = f"10.64.0.{7 + seed % 200}:{49152 + int(joins_s)}"
    yield StreamStart(t=joins_s, stream=stream, peer=peer, kind="sliced")
    state = Session(scenario, listener, stream, seed)
    processes = [process(state) for process in (handovers, fault, picture, voice)]
    for event in _interleave(processes, joins_s):
        if leaves_s is not None and event.t >= leaves_s:
            yield StreamEnd(t=leaves_s, stream=stream, reason="client_closed")
            return
        yield event


def _interleave(processes: list[Process], at_s: float) -> Iterator[Event]:
    """Run processes by the clock: whoever is due goes on until it waits again."""
    due = [(at_s, order, process) for order, process in enumerate(processes)]
    while due:
        _, order, process = heapq.heappop(due)
        for step in process:
            if not isinstance(step, Event):
                heapq.heappush(due, (step, order, process))
                break
            yield step
