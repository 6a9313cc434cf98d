"""The picture's clock, simulated: cameras of known skew, seen through the delays of mobile networks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import pytest

from omniwatch.core.picture_clock import POINTS, PictureClock, hull_slope

T0 = 1_700_000_000.0
SEEDS = range(8)
RATES = (2, 1)
"""Frames a second."""
LENGTH_S = 420


class Way(NamedTuple):
    """What frames go through: a delay that is a function of time, jitter, loss, a camera whose PTS jump."""

    queue_ms: Callable[[float], float] = lambda t: 0.0
    long_tail: bool = False
    lost: float = 0.0
    pts_jump_ms: float = 0.0
    """Added every other 70 s."""


def in_and_out(t: float) -> float:
    """Return a queue of 300 ms that fills in 10 s, stands for 10 and drains in 10, each minute from the second on."""
    x = t % 60
    return 0.0 if t < 60 else 300 * min(1.0, x / 10, max(0.0, 3 - x / 10))


WAYS = {
    "jitter": Way(),
    "a fifth dropped": Way(lost=0.2),
    "long tail": Way(long_tail=True),
    "300 ms for 8 s of each 30": Way(lambda t: 300 if t % 30 < 8 and t > 20 else 0),
    "300 ms for 3 minutes": Way(lambda t: 300 if 100 <= t < 280 else 0),
    "ramps": Way(in_and_out),
    "a route 60 ms longer": Way(lambda t: 60 if t > 90 else 0),
    "a route 45 ms shorter": Way(lambda t: 45 if t <= 90 else 0),
    "PTS that jump 400 ms": Way(pts_jump_ms=400),
}


def frames(way: Way, rate: float, skew_ppm: float, seed: int) -> Iterator[tuple[float, float]]:
    """Yield arrival in seconds and PTS in ms of each frame that arrives.

    Jitter is exponential, with 19 of 20 frames within 5 to 30 ms, as the seed has it; or has a long tail (Pareto, up to 2 s).
    """
    rng = random.Random(seed)
    phase, arrival, mean_ms = rng.random(), 0.0, rng.uniform(5, 30) / 3
    for n in range(LENGTH_S * int(rate)):
        taken = (n + phase) / rate
        pts_ms = taken * (1000 + skew_ppm / 1000) + way.pts_jump_ms * (int(taken / 70) % 2)
        jitter_ms = min(rng.paretovariate(1.5) * 5, 2000.0) if way.long_tail else rng.expovariate(1 / mean_ms)
        if rng.random() >= way.lost:
            arrival = max(arrival, taken + (20 + jitter_ms + way.queue_ms(taken)) / 1000)
            yield arrival, pts_ms


def skews(way: Way, rate: float, skew_ppm: float, seed: int) -> list[tuple[float, float]]:
    """Return what the clock says of the skew, in ppm, after each frame."""
    clock, said = PictureClock(), []
    for t, pts_ms in frames(way, rate, skew_ppm, seed):
        clock.frame(T0 + t, pts_ms)
        assert len(clock.times) == len(clock.delays_ms) <= POINTS
        said.append((t, clock.slope * 1000))
    return said


@pytest.mark.parametrize("skew_ppm", [0, 1000, -1000])
@pytest.mark.parametrize("name", ["jitter", "a fifth dropped", "long tail"])
def test_skew_is_known_within_200_ppm_after_a_minute(name, skew_ppm):
    for rate in RATES:
        for seed in SEEDS:
            at_60_s = [said for t, said in skews(WAYS[name], rate, skew_ppm, seed) if t < 60.5][-1]
            assert at_60_s == pytest.approx(skew_ppm, abs=200), (rate, seed)


def test_skew_is_first_known_after_36_s():
    """Design figures: within 300 ppm after 36 s at the median, 54 at worst."""
    first = [
        next(t for t, said in skews(WAYS["jitter"], rate, 1000, seed) if abs(said - 1000) <= 300)
        for rate in RATES
        for seed in SEEDS
    ]
    assert 30 <= median(first) <= 37
    assert max(first) <= 55


def test_without_skew_there_is_hardly_ever_one():
    """At most 200 ppm in 98 % of the time over all ways, none of which is right for less than 85 %."""
    shares = {}
    for name, way in WAYS.items():
        said = [ppm for rate in RATES for seed in SEEDS for _, ppm in skews(way, rate, 0, seed)]
        shares[name] = sum(abs(ppm) <= 200 for ppm in said) / len(said)
    assert sum(shares.values()) / len(shares) >= 0.98, shares
    assert min(shares.values()) >= 0.85, shares


@pytest.mark.parametrize(
    "name", ["300 ms for 8 s of each 30", "300 ms for 3 minutes", "a route 60 ms longer"]
)
@pytest.mark.parametrize("skew_ppm", [1000, -1000])
def test_queues_and_routes_do_not_hide_a_skew(name, skew_ppm):
    said = [
        ppm
        for rate in RATES
        for seed in SEEDS
        for t, ppm in skews(WAYS[name], rate, skew_ppm, seed)
        if t > 60
    ]
    assert sum(abs(ppm - skew_ppm) <= 300 for ppm in said) / len(said) >= 0.98


def test_a_network_that_stands_still_is_no_jump_of_the_camera():
    clock = PictureClock()
    for n in range(240):
        taken = n / 2
        held_s = max(0.0, 1.5 - taken % 14)
        clock.frame(T0 + taken + 0.05 + held_s, taken * 1.0004 * 1000)
    assert clock.times[-1] - clock.times[0] > 100
    assert clock.slope * 1000 == pytest.approx(400, abs=5)


@pytest.mark.parametrize("jump_ms", [-5000.0, 5000.0])
def test_a_camera_that_begins_anew_begins_a_new_line_and_keeps_its_skew(jump_ms):
    clock = PictureClock()
    for n in range(120):
        clock.frame(T0 + n / 2, n * 500.5)
    known = clock.slope
    assert known == pytest.approx(1.0, abs=0.01)
    clock.frame(T0 + 60, 60_000 + jump_ms)
    assert not clock.times
    assert clock.slope == known
    for n in range(1, 140):
        clock.frame(T0 + 60 + n / 2, 60_000 + jump_ms + n * 500)
    assert clock.slope == 0


def test_a_clock_that_was_set_begins_a_new_line_and_keeps_its_skew():
    clock = PictureClock()
    for n in range(120):
        clock.frame(T0 + n / 2, n * 500.5)
    clock.set_back(30.0)
    assert (clock.times, clock.t) == ([], T0 + 59.5 - 30)
    assert clock.slope == pytest.approx(1.0, abs=0.01)


def test_the_hulls_edge_is_the_one_over_the_mean_time():
    times = [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert hull_slope(times, [0.0, -3.0, 9.0, 9.0, 6.0, 30.0]) == pytest.approx(1.0)
    assert hull_slope(times, [t * 0.5 for t in times]) == pytest.approx(0.5)
