"""Theil-Sen slope and time to threshold."""

from __future__ import annotations

import random
from math import inf

import pytest

from omniwatch.core.trend import BIN_S, BINS, Slope, Trend


def filled(ms_per_s: float, seconds: float, jitter_ms: float = 0.0, hz: float = 12.5, seed: int = 1) -> Trend:
    rng, trend = random.Random(seed), Trend()
    for i in range(int(seconds * hz)):
        trend.add(1000 + i / hz, ms_per_s * i / hz + rng.gauss(0, jitter_ms))
    return trend


def test_progressive_drift_of_300_ms_in_ten_minutes_is_found_through_jitter():
    slope = filled(-0.5, 60, jitter_ms=8).slope()
    assert slope is not None
    assert slope.real
    assert slope.ms_per_s == pytest.approx(-0.5, abs=0.1)


def test_noise_alone_is_no_slope():
    false_alarms = 0
    for seed in range(200):
        slope = filled(0, 70, jitter_ms=8, seed=seed).slope()
        assert slope is not None
        false_alarms += slope.real
    assert false_alarms <= 4


def test_single_jumps_do_not_tilt_it():
    trend = filled(0, 30)
    trend.add(1031, 5000)
    slope = filled(0, 60).slope()
    assert slope is not None
    assert slope.ms_per_s == 0


def test_too_few_bins_say_nothing():
    assert filled(1, BIN_S * 4).slope() is None


def test_what_is_kept_is_bounded_and_forgets_what_is_older_than_its_window():
    trend = filled(1, 600)
    assert len(trend.times) <= BINS
    trend.add(5000, 0)
    trend.add(5000 + BIN_S, 0)
    assert trend.slope() is None


@pytest.mark.parametrize(
    ("slope", "drift", "eta"),
    [
        (Slope(-0.5, True), 0.0, 120.0),
        (Slope(-0.5, True), -30.0, 60.0),
        (Slope(0.5, True), -30.0, 180.0),
        (Slope(0.5, True), -60.0, 0.0),
        (Slope(0.5, False), 0.0, inf),
        (Slope(0.0, False), 10.0, inf),
        (Slope(0.0, False), 61.0, 0.0),
    ],
)
def test_time_to_threshold(slope, drift, eta):
    assert slope.eta_s(drift, 60) == pytest.approx(eta)
