"""Percentiles and their intervals, against numpy and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.desk.chain import statistics

FINITE = st.floats(min_value=-1e9, max_value=1e9)
NORMAL = {50: 0.0, 90: 1.2815515655446004, 99: 2.3263478740408408}
"""Percentiles of the normal distribution."""


@given(st.lists(FINITE, min_size=1, max_size=400), st.sampled_from([0, 1, 5, 50, 90, 99, 99.9, 100]))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    found = statistics.percentile(sorted(values), percent)
    assert found == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-6)


def test_a_percentile_that_reaches_turns_without_an_answer_is_infinite() -> None:
    answered = [1.0] * 98 + [math.inf] * 2
    assert statistics.percentile(answered, 50) == 1.0
    assert statistics.percentile(answered, 99) == math.inf


def test_a_p99_has_an_upper_end_from_368_turns() -> None:
    assert statistics.fewest_closed(99) == 368
    assert statistics.ranks(367, 99).high is None
    assert statistics.ranks(368, 99).high == 368
    assert statistics.fewest(99) == 100
    assert statistics.estimate([1.0] * 99, 99) == (99, None, None, None)
    assert statistics.estimate([1.0] * 100, 99) == (100, 1.0, 1.0, None)


def test_ranks_of_known_cases() -> None:
    """Of 20 values the 6th and the 15th hold the median at 95.86 % (published tables)."""
    assert statistics.ranks(20, 50) == (6, 15)
    assert statistics.ranks(5, 50) == (None, None)
    assert statistics.ranks(6, 50) == (1, 6)


@pytest.mark.parametrize(
    ("n", "percent"), [(n, p) for n in (30, 100, 368, 1000) for p in (50, 90, 99) if n >= 100 or p < 99]
)
def test_intervals_cover_the_true_percentile(n: int, percent: int) -> None:
    """4000 simulated benchmarks of log-normal times, and the exact share by whole numbers."""
    true = math.exp(0.6 * NORMAL[percent])
    ordered = np.sort(np.random.default_rng(n + percent).lognormal(0, 0.6, (4000, n)), axis=1)
    low, high = statistics.ranks(n, percent)
    covered = np.ones(4000, dtype=bool)
    if low is not None:
        covered &= ordered[:, low - 1] <= true
    if high is not None:
        covered &= true <= ordered[:, high - 1]
    assert exact_coverage(n, percent, low, high) >= 0.95
    assert covered.mean() >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 4000)


def exact_coverage(n: int, percent: int, low: int | None, high: int | None) -> float:
    """P(low <= B < high) by whole numbers: another way than the one under test."""
    hits = sum(
        math.comb(n, below) * percent**below * (100 - percent) ** (n - below)
        for below in range(low or 0, (n + 1) if high is None else high)
    )
    return hits * 10**12 // 100**n / 10**12


def test_a_bootstrap_would_not_cover_a_p99_of_100_turns() -> None:
    """Why intervals are order statistics: the share that a percentile bootstrap covers is far below 95 %."""
    draw = np.random.default_rng(1)
    true = math.exp(0.6 * NORMAL[99])
    covered = 0
    for _ in range(300):
        seen = draw.lognormal(0, 0.6, 100)
        found = np.percentile(draw.choice(seen, (300, 100)), 99, axis=1)
        covered += int(np.percentile(found, 2.5) <= true <= np.percentile(found, 97.5))
    assert covered / 300 < 0.8


def test_the_difference_of_medians_covers_the_truth() -> None:
    draw = np.random.default_rng(2)
    covered = 0
    for seed in range(40):
        first, second = draw.lognormal(0, 0.5, 50), draw.lognormal(0, 0.5, 50) + 0.3
        found = statistics.median_difference(list(first), list(second), seed)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.3 <= found.high
    assert covered / 40 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 40)
    assert statistics.median_difference([1.0] * 19, [2.0] * 50, 0).value is None


def test_shares_have_clopper_pearsons_interval() -> None:
    assert statistics.share_interval(0, 100) == pytest.approx((0.0, 0.0362167), abs=1e-6)
    assert statistics.share_interval(5, 100) == pytest.approx((0.0164319, 0.1128349), abs=1e-6)
    assert statistics.share_interval(100, 100) == pytest.approx((0.9637833, 1.0), abs=1e-6)
