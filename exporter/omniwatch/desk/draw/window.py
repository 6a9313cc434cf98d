"""Compute time range and step as Grafana's Prometheus data source does."""

from __future__ import annotations

import math
from typing import NamedTuple

from omniwatch.desk import durations

_STEPS_MS = (
    *((10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000)),
    *((7500, 5000), (12_500, 10_000), (17_500, 15_000), (25_000, 20_000), (45_000, 30_000), (90_000, 60_000)),
    *(
        (210_000, 120_000),
        (450_000, 300_000),
        (750_000, 600_000),
        (1_050_000, 900_000),
        (1_500_000, 1_200_000),
    ),
    *((2_700_000, 1_800_000), (5_400_000, 3_600_000), (9_000_000, 7_200_000), (16_200_000, 10_800_000)),
    *((32_400_000, 21_600_000), (86_400_000, 43_200_000), (604_800_000, 86_400_000)),
)
"""Below this many milliseconds between points, Grafana takes that many."""


class Window(NamedTuple):
    """What is looked at, in seconds since the epoch."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.end - self.start

    def aligned(self, step_s: float) -> Window:
        """Return the whole steps of it, so that a later look gives the same points."""
        return Window(*(math.floor(round(t / step_s, 6)) * step_s for t in self))


def seconds(text: str) -> float:
    """Read a duration such as 30m, 1.5h or 250ms, longer than 0. Raises ValueError."""
    try:
        found = durations.seconds(text.strip(), fractions=True)
    except ValueError:
        found = 0.0
    if not found:
        raise ValueError(f"expected a time such as 30m or 90s, got {text!r}")
    return found


def duration(length_s: float) -> str:
    """Write a time as Prometheus reads it, to the millisecond."""
    milliseconds = round(length_s * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def step_s(window: Window, points: int, least_s: float) -> float:
    """Return the time between points that gives about so many of them, not less than `least_s`."""
    exact_ms = window.length_s * 1000 / points
    if exact_ms < least_s * 1000:
        return least_s
    rounded_ms = next((step for below, step in _STEPS_MS if exact_ms < below), 604_800_000)
    return max(rounded_ms / 1000, least_s)


def rate_s(step: float, scrape_s: float) -> float:
    """Return $__rate_interval: long enough for a rate at every point, however fine the steps are."""
    return max(step + scrape_s, 4 * scrape_s)
