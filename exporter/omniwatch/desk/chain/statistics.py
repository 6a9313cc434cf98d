"""Estimate percentiles of few turns, with intervals that hold. Pure.

A percentile's interval is a pair of order statistics (David and Nagaraja, Order Statistics, section 7.1). The number of
turns below the true percentile is binomial, whatever the distribution of the times. So the ranks between which the
percentile lies, with the stated confidence, follow from n and p alone. A bootstrap cannot do this for a P99 of 100 turns: it never draws
a value larger than the largest one seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95
PERCENTILES = (50, 90, 99)
ROUNDS = 1000
"""Resamples of a bootstrap."""
FEWEST_TO_COMPARE = 20
"""Turns on each side below which a bootstrap of medians is not attempted: its interval is then too short."""


class Ranks(NamedTuple):
    """Places in the sorted values, from 1; None where the interval is open: no value seen is far enough out."""

    low: int | None
    high: int | None


class Estimate(NamedTuple):
    """A percentile and its interval. `value` is None with too few turns; an end is None where the interval is open."""

    n: int
    value: float | None
    low: float | None
    high: float | None


def fewest(percent: float) -> int:
    """Return how many values a percentile needs to be named at all: one is expected beyond it."""
    share = min(percent, 100 - percent) / 100
    return math.ceil(round(1 / share, 9)) if percent != 50 else 1


def fewest_closed(percent: float, confidence: float = CONFIDENCE) -> int:
    """Return how many values make both ends of a percentile's interval closed: 368 for a P99 at 95 %."""
    share = max(percent, 100 - percent) / 100
    return math.ceil(round(math.log((1 - confidence) / 2) / math.log(share), 9))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the percentile of sorted values, linear between neighbours (numpy's default). A value may be infinite."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    part = place - below
    if not part:
        return ordered[below]
    low, high = ordered[below], ordered[below + 1]
    return high if math.isinf(high) else low + (high - low) * part


@lru_cache(maxsize=4096)
def ranks(n: int, percent: float, confidence: float = CONFIDENCE) -> Ranks:
    """Return the ranks between which the percentile lies with at least that confidence.

    B ~ Binomial(n, percent/100) counts the values below the percentile. Each end is missed with at most half of the rest:
    `low` is the largest l with P(B < l) <= rest/2, `high` the smallest u with P(B >= u) <= rest/2.
    """
    tail = (1 - confidence) / 2
    below = _cumulative(n, percent / 100)
    low = max((rank for rank in range(1, n + 1) if below[rank - 1] <= tail), default=None)
    high = min((rank for rank in range(1, n + 1) if 1 - below[rank - 1] <= tail), default=None)
    return Ranks(low, high)


def _cumulative(n: int, share: float) -> list[float]:
    """P(B <= k) for each k of 0..n, from logarithms: n may be thousands."""
    total, found = 0.0, []
    log_all = math.lgamma(n + 1)
    for k in range(n + 1):
        log_ways = log_all - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        total += math.exp(log_ways + k * math.log(share) + (n - k) * math.log1p(-share))
        found.append(min(1.0, total))
    return found


def estimate(values: Sequence[float], percent: float, confidence: float = CONFIDENCE) -> Estimate:
    """Return the percentile with its interval; without a value where fewer than `fewest` are given."""
    ordered = sorted(values)
    n = len(ordered)
    if n < fewest(percent):
        return Estimate(n, None, None, None)
    low, high = ranks(n, percent, confidence)
    return Estimate(
        n,
        percentile(ordered, percent),
        None if low is None else ordered[low - 1],
        None if high is None else ordered[high - 1],
    )


def share_interval(hits: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share, `hits` of n (Clopper and Pearson), found by halving."""
    tail = (1 - confidence) / 2

    def solve(wanted: float, k: int) -> float:
        # P(B <= k) falls as the share grows.
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _cumulative(n, middle)[k] > wanted else (low, middle)
        return (low + high) / 2

    return (
        0.0 if hits == 0 else solve(1 - tail, hits - 1),
        1.0 if hits == n else solve(tail, hits),
    )


def median_difference(
    first: Sequence[float], second: Sequence[float], seed: int, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the second's median less the first's, with a percentile bootstrap's interval; all values are finite.

    Without a value where a side has fewer than FEWEST_TO_COMPARE.
    """
    n = min(len(first), len(second))
    if n < FEWEST_TO_COMPARE:
        return Estimate(n, None, None, None)
    draw = random.Random(seed)

    def resampled(values: Sequence[float]) -> float:
        return percentile(sorted(draw.choices(values, k=len(values))), 50)

    found = sorted(resampled(second) - resampled(first) for _ in range(ROUNDS))
    tail = (1 - confidence) / 2 * 100
    return Estimate(
        n,
        percentile(sorted(second), 50) - percentile(sorted(first), 50),
        percentile(found, tail),
        percentile(found, 100 - tail),
    )
