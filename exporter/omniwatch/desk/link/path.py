"""Compute when sent data arrives: bursts of loss, TCP's retransmissions, outages. Pure, by a seed.

TCP is modelled as a listener meets it: a lost segment holds up all behind it. If at least three segments follow, the
delay is a round trip (fast retransmit). Else it is the retransmission timeout, which doubles with each further loss. A
handshake retries after 1, 2, 4 … s. Left out: the congestion window (`down_kbit` stands for what a connection gets) and
lost acknowledgements (the next one makes up for them).
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from omniwatch.desk.link.scenario import Handover, Loss, Scenario, Standing

SEGMENT_BYTES = 1448
"""Payload of one segment: 1500 bytes less IPv4 and TCP headers with timestamps."""
RTO_FLOOR_S = 0.2
"""Linux adds at least this to the smoothed round trip (TCP_RTO_MIN)."""
LONGEST_S = 60.0
"""The longest time for which nothing passes."""
SYN_RTO_S = 1.0
"""RFC 6298, 2.1."""
MAX_RTO_S = 120.0
MAX_RETRIES = 15
"""So often Linux sends a segment again (tcp_retries2), for a quarter of an hour and longer than any client waits."""
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

    def lost_later(self) -> bool:
        """Whether a packet is lost that is sent long after the one before: by then any burst is over."""
        return self._rng.random() < self._loss.share


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


class Flow:
    """One direction of one connection: when each segment sent arrives, in order."""

    def __init__(self, link: Link, way: str, kbit: float) -> None:
        self._link = link
        self._way = way
        self._bytes_per_s = kbit * 125
        self._free_at = 0.0
        self._last_at = 0.0

    def arrivals(self, now: float, size: int) -> list[tuple[float, int]]:
        """Return (when, bytes) of what arrives of `size` bytes sent now, together all of them."""
        link, found = self._link, list[tuple[float, int]]()
        segments = max(1, math.ceil(size / SEGMENT_BYTES))
        for number in range(segments):
            part = min(SEGMENT_BYTES, size - number * SEGMENT_BYTES)
            self._free_at = max(now, self._free_at)
            if self._bytes_per_s:
                self._free_at += part / self._bytes_per_s
            sent_at = link.passes(self._way, self._free_at, behind=segments - 1 - number)
            self._last_at = max(self._last_at, sent_at + link.one_way_s(self._way, sent_at))
            if found and found[-1][0] == self._last_at:
                part += found.pop()[1]
            found.append((self._last_at, part))
        return found


class Link:
    """The network of a scenario and a seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rng = random.Random(seed)
        self.scenario = scenario
        self.weather = OutageSchedule(scenario, random.Random(rng.random()))
        self.luck = random.Random(rng.random())
        """For frame mode."""
        self._jitter = random.Random(rng.random())
        self.channels = {
            "up": Gilbert(scenario.loss_up or scenario.loss, random.Random(rng.random())),
            "down": Gilbert(scenario.loss, random.Random(rng.random())),
        }
        """What decides on the loss of a packet, by direction."""
        self._rto_s = scenario.rtt_ms / 1000 + RTO_FLOOR_S

    def flow(self, way: str) -> Flow:
        """Return one direction ("up" or "down") of a new connection."""
        scenario = self.scenario
        return Flow(self, way, scenario.up_kbit if way == "up" else scenario.down_kbit)

    def one_way_s(self, way: str, at: float) -> float:
        """Return how long a packet sent at `at` takes that is not lost."""
        standing = standing_s(self.scenario.standing_up, at) if way == "up" else 0.0
        return (
            self.scenario.rtt_ms / 2000 + self._jitter.uniform(0, self.scenario.jitter_ms / 1000) + standing
        )

    def passes(self, way: str, at: float, *, behind: int = 0, rto_s: float = 0.0) -> float:
        """Return when a segment first sent at `at` is sent for the last time, `behind` others following it."""
        pause_s = rto_s or self._rto_s
        channel = self.channels[way]
        lost = channel.lost() or self.weather.down(at)
        if lost and behind >= 3:
            at += self.scenario.rtt_ms / 1000
            lost = channel.lost_later() or self.weather.down(at)
        for _ in range(MAX_RETRIES):
            if not lost:
                break
            at += pause_s
            pause_s = min(MAX_RTO_S, 2 * pause_s)
            lost = channel.lost_later() or self.weather.down(at)
        return at

    def handshake(self, now: float) -> float:
        """Return when a connection begun now stands, as its client sees it."""
        at = self.passes("up", now, rto_s=SYN_RTO_S)
        at += self.one_way_s("up", at)
        at = self.passes("down", at, rto_s=SYN_RTO_S)
        return at + self.one_way_s("down", at)
