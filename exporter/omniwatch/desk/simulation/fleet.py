"""Simulate a fleet as its centre sees it: each device's series, as a function of seed and time. Pure."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from omniwatch.centre.inventory import Device
from omniwatch.centre.uplink_metrics import FAMILIES

SITE_DEVICES = 100
"""So many devices share a site."""
MODELS = ("orin-64", "orin-64", "orin-32")
RELEASES = ("2026.10", "2026.10", "2026.10", "2026.11")
"""A quarter of the fleet has the new one, which is a little worse."""
TROUBLE_S = 240.0
"""How long a device's trouble lasts, and its alert with it."""
FRAMES_PER_S = 12.5
DAY_S = 86_400.0


Value = Callable[["Member", float], float]
"""A family's value on a device at a time."""


class Plan(NamedTuple):
    """What befalls a fleet. Shares are of all devices at any time."""

    devices: int
    seed: int = 1
    outage_share: float = 0.02
    outage_s: float = 300.0
    """How long a device that is away does not answer."""
    skewed_share: float = 0.01
    """Their clocks are one to eight minutes off, either way, and so are the times of all they send."""
    trouble_share: float = 0.01
    """Of the old release; of the new one, twice that."""


class Wave(NamedTuple):
    """Something that is on for `for_s` once in `every_s`, for each device at its own time."""

    every_s: float
    for_s: float
    begins_s: float

    def on(self, t: float) -> float | None:
        """Return for how long it has been on; None when it is not."""
        since_s = (t - self.begins_s) % self.every_s
        return since_s if since_s < self.for_s else None


class Member:
    """One device. Every value is a function of the time alone, so that it can be asked for any time, in any order."""

    def __init__(self, number: int, plan: Plan) -> None:
        luck = random.Random(f"{plan.seed}/{number}")
        self.name = f"device-{number:05d}"
        self.site = f"site-{number // SITE_DEVICES:03d}"
        self.model = luck.choice(MODELS)
        self.release = luck.choice(RELEASES)
        self.worse = 2.0 if self.release == RELEASES[-1] else 1.0
        self.skew_s = 0.0
        if luck.random() < plan.skewed_share:
            self.skew_s = luck.choice((-1, 1)) * luck.uniform(60, 480)
        self.away = _wave(luck, plan.outage_share, plan.outage_s)
        self.trouble = _wave(luck, plan.trouble_share * self.worse, TROUBLE_S)
        self.late = luck.random() < 0.5
        """Whether its trouble is late answers, not a voice that drifts away."""
        self.busy = luck.uniform(0.2, 0.7)
        """Share of its time in which somebody listens."""
        self.drift_ms = luck.uniform(8, 25) * math.sqrt(self.worse)
        self.rtt_ms = luck.uniform(380, 600) * (1.06 if self.worse > 1 else 1)
        self.phases = [luck.uniform(0, 2 * math.pi) for _ in range(4)]
        self.heat_celsius = luck.uniform(52, 68)
        self.began_s = luck.uniform(0, DAY_S)

    def answers(self, t: float) -> bool:
        """Say whether it can be reached."""
        return self.away.on(t) is None

    def work_s(self, t: float) -> float:
        """Return the seconds of conversation it has had: it only grows, now faster, now slower."""
        turn = 2 * math.pi * t / 900 + self.phases[0]
        return self.busy * ((t + self.began_s) % (30 * DAY_S) + 0.9 * 900 / (2 * math.pi) * math.sin(turn))

    def sway(self, t: float, period_s: float, phase: int) -> float:
        """Return a number between -1 and 1 that comes and goes without repeating soon."""
        turn = 2 * math.pi * t / period_s + self.phases[phase]
        return math.sin(turn) * math.sin(turn * 0.381966 + self.phases[phase - 1])


def members(plan: Plan) -> list[Member]:
    """Return the devices of a fleet."""
    return [Member(number, plan) for number in range(plan.devices)]


def inventory(devices: list[Member], address: str) -> list[Device]:
    """Return the devices as a fleet file has them, served below an http(s) `address`."""
    return [
        Device(one.name, f"{address}/devices/{one.name}/metrics", one.site, one.model, one.release)
        for one in devices
    ]


def series(member: Member, t: float) -> Iterator[tuple[str, str, float]]:
    """Yield what a device sends up at `t`: names, labels as they are written ("" or `a="b",…`), values.

    Its outages are not looked at: what it keeps meanwhile is sent later.
    """
    for name, written, value in _SERIES:
        for labels in written:
            yield name, labels, value(member, t)
    for labels, value in BAD_TURNS.items():
        yield BAD, labels, value(member, t)
    yield from _alerts(member, t)


def exposition(member: Member, t: float, *, labelled: bool = False, stamped: bool = False) -> str:
    """Return a device's page at `t`. Its clock's time stands on every line where that is wrong or it is to be `stamped`.

    `labelled` adds the labels that discovery or the device's own uplink would add.
    """
    own = f'site="{member.site}",device="{member.name}",model="{member.model}",release="{member.release}"'
    end = f" {round((t + member.skew_s) * 1000)}\n" if stamped or member.skew_s else "\n"
    lines = []
    for name, labels, value in series(member, t):
        text = ",".join(filter(None, (labels, own))) if labelled else labels
        lines.append(f"{name}{{{text}}} {value!r}{end}" if text else f"{name} {value!r}{end}")
    return "".join(lines)


def _wave(luck: random.Random, share: float, for_s: float) -> Wave:
    every_s = for_s / share if share else math.inf
    return Wave(every_s, for_s, luck.uniform(0, every_s)) if share else Wave(math.inf, 0.0, 0.0)


def _alerts(member: Member, t: float) -> Iterator[tuple[str, str, float]]:
    since_s = member.trouble.on(t)
    hold_s = 20 if member.late else 15
    if since_s is not None and since_s > hold_s:
        name = "TokenRTT" if member.late else "CodecDrift"
        yield ALERT, f'alertname="{name}",severity="page",stream="0"', t + member.skew_s


def _worse_ms(member: Member, t: float, late: bool, at_most_ms: float) -> float:
    """Return what a device's trouble adds to its drift, or to its answers: it grows, and ends at once."""
    since_s = member.trouble.on(t)
    return 0.0 if since_s is None or member.late is not late else 60 + at_most_ms * since_s / TROUBLE_S


def _drift_ms(member: Member, t: float) -> float:
    return member.drift_ms * (1 + 0.6 * member.sway(t, 210, 1)) + _worse_ms(member, t, False, 240)


def _rtt_ms(member: Member, t: float, above: float) -> float:
    return member.rtt_ms * (above + 0.15 * member.sway(t, 130, 2)) + _worse_ms(member, t, True, 900)


def _count(per_s: float, bad_share: float = 0.0) -> Value:
    """Return a counter that grows by `per_s` in conversation, less a share that is larger on a worse release."""
    return lambda member, t: float(int(member.work_s(t) * per_s * (1 - bad_share * member.worse)))


def _amount(per_s: float) -> Value:
    return lambda member, t: member.work_s(t) * per_s


def _steady(value: float) -> Value:
    return lambda member, t: value


ALERT = "uplink:alert_firing"
VALUES: dict[str, Value] = {
    "uplink:time_seconds": lambda member, t: t + member.skew_s,
    "uplink:build_info": _steady(1.0),
    "uplink:up:min": _steady(1.0),
    "uplink:source_up:min": _steady(1.0),
    "uplink:streams:max": lambda member, t: float(round(1 + member.sway(t, 1500, 3))),
    "uplink:drift_abs_ms:max": _drift_ms,
    "uplink:rtt_ms:max": lambda member, t: _rtt_ms(member, t, 1.0),
    "uplink:rtt_ms:p95": lambda member, t: _rtt_ms(member, t, 1.2),
    "uplink:silent_seconds:max": lambda member, t: max(0.0, member.sway(t, 170, 1) - 0.3),
    "uplink:turns_total": _count(0.1),
    "uplink:turns_in_sync_total": _count(0.1, 0.01),
    "uplink:turns_judged_total": _count(0.1),
    "uplink:answers_total": _count(0.1),
    "uplink:answers_in_time_total": _count(0.1, 0.02),
    "uplink:resumes_total": _count(0.02),
    "uplink:resumes_well_total": _count(0.02, 0.004),
    "uplink:audio_seconds_total": _amount(0.6),
    "uplink:underrun_seconds_total": _amount(0.0008),
    "uplink:frames_total": _count(0.6 * FRAMES_PER_S),
    "uplink:frames_lost_total": _count(0.6 * FRAMES_PER_S * 0.003),
    "uplink:events_lost_total": _steady(0.0),
    "uplink:cpu_throttled_periods_total": _count(0.05),
    "uplink:gpu_load_ratio:avg": lambda member, t: 0.45 + 0.4 * member.sway(t, 90, 0),
    "uplink:temperature_celsius:max": lambda member, t: round(
        member.heat_celsius + 6 * member.sway(t, 2400, 1), 1
    ),
    "uplink:memory_available_ratio:min": lambda member, t: 0.22 + 0.02 * member.sway(t, 600, 2),
    "uplink:queue_bytes:max": lambda member, t: float(round(6000 + 5000 * member.sway(t, 75, 3))),
    "uplink:queue_dropped_total": _steady(0.0),
}
"""How each family of the uplink moves. Not among them: what only the other kind of agent has, bad turns by cause, and alerts."""
BAD = "uplink:turns_bad_total"
BAD_TURNS: dict[str, Value] = {
    'symptom="starved",cause="network"': _count(0.0006),
    'symptom="late",cause="load"': lambda member, t: float(int(member.work_s(t) * 0.0008 * member.worse)),
}
"""How the bad turns of each symptom and cause grow; those by the device's own load twice as fast on a worse release."""

_SERIES = [
    (
        family.name,
        [
            ",".join(f'{label}="{value}"' for label, value in zip(family.labels, values, strict=True))
            for values in itertools.product(*family.labels.values())
        ],
        VALUES[family.name],
    )
    for family in FAMILIES
    if family.name in VALUES
]
