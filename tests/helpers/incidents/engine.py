"""Serve shares of a processor to answers: thinking, then speech frame by frame. Event by event, in seconds.

A quota stops it for the rest of each period, heat scales it, stalls stop it, each answer under way takes its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

FRAME_S = 0.08
PERIOD_S = 0.1


@dataclass
class Job:
    """One answer: work in seconds of the whole processor. Times are filled in as it is served."""

    asked_t: float
    think: float
    voice: float
    frame: float
    """Work for one codec frame."""
    frames: int
    slower: tuple[float, float, float] | None = None
    """From when until when a frame costs so many times as much."""
    text_t: float = inf
    frame_ts: list[float] = field(default_factory=list)


@dataclass
class Machine:
    """What the processor gives, and what is taken from it. Spells are (from, until, how much)."""

    quota: tuple[float, float, float] | None = None
    """Share of each period that may be used."""
    heat: tuple[float, float, float] | None = None
    """Share of the clocks that is left."""
    stops: list[tuple[float, float]] = field(default_factory=list)
    """Nothing runs meanwhile."""
    waits: list[tuple[float, float]] = field(default_factory=list)
    """Of these, those in which it waits for memory."""
    throttled: list[tuple[float, float]] = field(default_factory=list)
    """When the quota stopped it, filled in as it serves."""
    busy: list[tuple[float, float]] = field(default_factory=list)
    """When it had something to do, filled in as well."""

    def edges(self) -> list[float]:
        """When what it gives changes."""
        spells = [spell for spell in (self.quota, self.heat) if spell]
        return sorted({t for spell in spells for t in spell[:2]} | {t for stop in self.stops for t in stop})

    def speed(self, t: float) -> float:
        """How fast it runs at t."""
        if any(a <= t < b for a, b in self.stops):
            return 0.0
        return self.heat[2] if self.heat and self.heat[0] <= t < self.heat[1] else 1.0

    def allowed(self, t: float) -> float:
        """What may be used of the period that begins at t, in seconds."""
        return PERIOD_S * self.quota[2] if self.quota and self.quota[0] <= t < self.quota[1] else inf


def serve(machine: Machine, jobs: list[Job]) -> None:
    """Fill in when each job's text and frames were done."""
    waiting = sorted(jobs, key=lambda job: job.asked_t, reverse=True)
    edges = machine.edges()
    active: dict[int, tuple[Job, Iterator[float], float]] = {}
    now = 0.0
    period = -1
    budget = inf
    while waiting or active:
        if not active:
            now = max(now, waiting[-1].asked_t)
        while waiting and waiting[-1].asked_t <= now + 1e-9:
            job = waiting.pop()
            steps = _steps(job)
            active[id(job)] = job, steps, next(steps)
        this = int(now / PERIOD_S + 1e-9)
        if this != period:
            period, budget = this, machine.allowed(this * PERIOD_S)
        end = (this + 1) * PERIOD_S
        until = min([end, *[t for t in edges if t > now + 1e-9][:1]])
        if waiting:
            until = min(until, waiting[-1].asked_t)
        speed = machine.speed(now)
        if machine.busy and machine.busy[-1][1] >= now - 1e-9:
            machine.busy[-1] = machine.busy[-1][0], now
        else:
            machine.busy.append((now, now))
        if speed and budget <= 1e-9:
            machine.throttled.append((now, until))
            now = until
            continue
        if not speed:
            now = until
            continue
        rate = speed / len(active)
        soonest = min(left for _, _, left in active.values()) / rate
        took = min(soonest, until - now, budget)
        now += took
        budget -= took
        for key, (job, steps, left) in list(active.items()):
            left -= took * rate
            if left > 1e-9:
                active[key] = job, steps, left
                continue
            if job.text_t == inf:
                job.text_t = now
            else:
                job.frame_ts.append(now)
            if len(job.frame_ts) == job.frames:
                del active[key]
            else:
                work = next(steps)
                if job.slower and job.slower[0] <= now < job.slower[1] and job.frame_ts:
                    work *= job.slower[2]
                active[key] = job, steps, work


def _steps(job: Job) -> Iterator[float]:
    yield job.think
    yield job.voice + job.frame
    while True:
        yield job.frame
