"""Compute what a network does to packets: bursts of loss, delay, rate, outages. Pure, by a seed.

What TCP makes of it is in tcp.py; a handshake retries after 1, 2, 4 … s.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from omniwatch.desk.link.scenario import Handover, Loss, Scenario, Standing
from omniwatch.desk.link.tcp import MOST_RTO_S, Flow

LONGEST_S = 60.0
"""The longest time for which nothing passes."""
SYN_RTO_S = 1.0
"""RFC 6298, 2.1."""
SYN_RETRIES = 10
Z95 = 1.6449
"""The standard normal distribution's 95th percentile."""


class Gilbert:
    """A channel that is good or bad, and loses packets (or frames) while it is bad."""

    def __init__(self, loss: Loss, rng: random.Random) -> None:
        self._rng = rng
        self._loss = loss
        self._bad = False
        in_bad = min(1.0, loss.share / loss.bad)
        self._leave = 1 / loss.burst if loss.burst else 1 - in_bad
        # In the long run the channel is bad for enter / (enter + leave) of the packets.
        self._enter = min(1.0, in_bad * self._leave / (1 - in_bad)) if in_bad < 1 else 1.0

    def lost(self) -> bool:
        """Whether the next packet is lost."""
        if not self._loss.share:
            return False
        self._bad = self._rng.random() >= self._leave if self._bad else self._rng.random() < self._enter
        return self._bad and (self._loss.bad >= 1 or self._rng.random() < self._loss.bad)


class Blackout(NamedTuple):
    """At `at` seconds, for `for_s`, nothing passes; `cut` is "silent" or "reset" where connections do not survive it."""

    at: float
    for_s: float
    cut: str
    why: str


class OutageSchedule:
    """Outages, handovers and cuts in the order they come, the same for all connections."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self._known: list[Blackout] = []
        self._coming = merge(*_sources(scenario, rng))

    def happening(self, number: int) -> Blackout | None:
        """Return what happens as the `number`th from 0, None when so much never happens."""
        while len(self._known) <= number:
            coming = next(self._coming, None)
            if coming is None:
                return None
            self._known.append(coming)
        return self._known[number]

    def down(self, now: float) -> bool:
        """Whether nothing passes at `now`."""
        while (not self._known or self._known[-1].at <= now) and self.happening(len(self._known)):
            pass
        first = bisect_right(self._known, now - LONGEST_S, key=lambda happening: happening.at)
        last = bisect_right(self._known, now, key=lambda happening: happening.at)
        return any(now < happening.at + happening.for_s for happening in self._known[first:last])


def _sources(scenario: Scenario, rng: random.Random) -> Iterator[Iterator[Blackout]]:
    # Each has luck of its own, so that one does not change what another does.
    if scenario.outage:
        outage = scenario.outage
        begin = rng.uniform(0.2, 1.0) * outage.every_s
        yield (Blackout(begin + i * outage.every_s, outage.for_s, "", "outage") for i in _count())
    if scenario.handover:
        yield _handovers(scenario.handover, random.Random(rng.random()))
    if scenario.cuts:
        yield _cuts(scenario.cuts.every_s, scenario.cuts.silent, random.Random(rng.random()))


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _handovers(handover: Handover, rng: random.Random) -> Iterator[Blackout]:
    mean_s, now = 60 / handover.per_minute, 0.0
    sigma = (
        math.log(handover.p95_ms / handover.median_ms) / Z95 if handover.p95_ms > handover.median_ms else 0.0
    )
    while True:
        now += mean_s * rng.uniform(0.75, 1.25)
        fails = rng.random() < handover.failure
        for_s = (
            rng.uniform(*handover.failure_s)
            if fails
            else handover.median_ms / 1000 * math.exp(rng.gauss(0, sigma))
        )
        cut = "silent" if rng.random() < handover.cut else ""
        yield Blackout(now, min(for_s, LONGEST_S), cut, "handover failed" if fails else "handover")


def _cuts(every_s: float, silent: float, rng: random.Random) -> Iterator[Blackout]:
    now = 0.0
    while True:
        now += rng.expovariate(1 / every_s)
        yield Blackout(now, 0.0, "silent" if rng.random() < silent else "reset", "cut")


def standing_s(queue: Standing | None, at: float) -> float:
    """Return how much longer a packet waits at `at` in a queue that others fill; it stands at the end of each period."""
    if queue is None or at % queue.every_s < queue.every_s - queue.for_s:
        return 0.0
    return queue.ms / 1000


class Way:
    """One direction of a network: what is lost, and when the rest arrives. Time is seconds since the network began."""

    def __init__(self, name: str, scenario: Scenario, outages: OutageSchedule, rng: random.Random) -> None:
        up = name == "up"
        loss = scenario.loss_up if up and scenario.loss_up is not None else scenario.loss
        self.channel = Gilbert(loss, random.Random(rng.random()))
        self.fate = ""
        """What the last packet counts as: carried, lost or overflowed."""
        self._jitter = random.Random(rng.random())
        self._outages = outages
        self._scenario = scenario
        self._standing = scenario.standing_up if up else None
        self._bytes_per_s = (scenario.up_kbit if up else scenario.down_kbit) * 125
        self._free_at = 0.0
        self._last_at = 0.0

    def passes(self, now: float) -> bool:
        """Whether a packet sent now is not lost."""
        return not (self._outages.down(now) or self.channel.lost())

    def delay_s(self, now: float) -> float:
        """Return how long a packet sent now is on the way, but for a queue of its own."""
        jitter_s = self._jitter.uniform(0, self._scenario.jitter_ms / 1000)
        return self._scenario.rtt_ms / 2000 + jitter_s + standing_s(self._standing, now)

    def carry(self, now: float, size: int) -> float | None:
        """Return when a packet of `size` bytes arrives that is sent now, behind those sent before; None if it is lost."""
        self.fate = "lost"
        if not self.passes(now):
            return None
        if self._bytes_per_s:
            self._free_at = max(now, self._free_at)
            if self._free_at - now > self._scenario.queue_ms / 1000:
                self.fate = "overflowed"
                return None
            self._free_at += size / self._bytes_per_s
        self._last_at = max(self._last_at, max(now, self._free_at) + self.delay_s(now))
        self.fate = "carried"
        return self._last_at


class Link:
    """The network of a scenario and a seed, and the TCP of those who talk over it."""

    def __init__(self, scenario: Scenario, seed: int, congestion: str = "cubic") -> None:
        rng = random.Random(seed)
        self.scenario = scenario
        self.weather = OutageSchedule(scenario, random.Random(rng.random()))
        self.luck = random.Random(rng.random())
        """For frame mode."""
        self.ways = {
            name: Way(name, scenario, self.weather, random.Random(rng.random())) for name in ("up", "down")
        }
        self._congestion = congestion
        self._first_rtt_s: float | None = None

    def flow(self, way: str) -> Flow:
        """Return one direction ("up" or "down") of a new connection."""
        back = "down" if way == "up" else "up"
        luck = random.Random(self.luck.random())
        first_rtt_s = (self.scenario.rtt_ms + self.scenario.jitter_ms) / 1000
        return Flow(self.ways[way].carry, self.ways[back].carry, self._congestion, luck, first_rtt_s)

    def handshake(self, now: float) -> float:
        """Return when a connection begun now stands, as its client sees it. Each lost packet of it is tried again."""
        for name in ("up", "down"):
            way, pause_s = self.ways[name], SYN_RTO_S
            for _ in range(SYN_RETRIES):
                if way.passes(now):
                    break
                now += pause_s
                pause_s = min(MOST_RTO_S, 2 * pause_s)
            now += way.delay_s(now)
        return now
