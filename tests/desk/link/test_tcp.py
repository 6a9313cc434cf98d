"""One direction of a TCP connection in virtual time: what Linux does about each loss, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from omniwatch.desk.link.tcp import CONTROLS, SEGMENT_BYTES, Flow

HALF_S = 0.05


class Way:
    """Carries each packet in 50 ms, but for those whose numbers are given, counted from 0."""

    def __init__(self, lost: set[int] | None = None, share: float = 0.0) -> None:
        self.sent: list[tuple[float, int]] = []
        self._lost, self._share, self._rng = lost or set(), share, random.Random(1)

    def __call__(self, now: float, size: int) -> float | None:
        self.sent.append((now, size))
        lost = len(self.sent) - 1 in self._lost or self._rng.random() < self._share
        return None if lost else now + HALF_S


def flow(down: Way, up: Way | None = None, congestion: str = "cubic") -> Flow:
    return Flow(down, up or Way(), congestion, random.Random(1), first_rtt_s=0.1)


def arrivals(one: Flow, until: float = 100.0) -> list[tuple[float, int]]:
    one.advance(until)
    found = list(one.arrived)
    one.arrived.clear()
    return found


controls = pytest.mark.parametrize("congestion", list(CONTROLS))


@controls
def test_without_loss_a_segment_takes_half_a_round_trip(congestion: str) -> None:
    one = flow(Way(), congestion=congestion)
    one.write(1.0, 1000)
    assert arrivals(one) == [(pytest.approx(1.05), 1000)]
    assert (one.under_way, one.due()) == (0, None)


@pytest.mark.parametrize("congestion", ["cubic", "reno"])
def test_ten_segments_are_sent_at_once_and_the_rest_as_they_are_acknowledged(congestion: str) -> None:
    down = Way()
    one = flow(down, congestion=congestion)
    one.write(0.0, 30 * SEGMENT_BYTES)
    assert len(down.sent) == 10
    one.advance(0.12)
    assert len(down.sent) == 30
    assert sum(size for _, size in arrivals(one)) == 30 * SEGMENT_BYTES


def test_bbr_spreads_what_it_sends() -> None:
    down = Way()
    one = flow(down, congestion="bbr")
    one.write(0.0, 200 * SEGMENT_BYTES)
    one.advance(10.0)
    times = [at for at, _ in down.sent]
    assert one.under_way == 0
    assert sum(b > a for a, b in pairwise(times)) > 0.9 * len(times)


@pytest.mark.parametrize(
    ("lost", "after_s"),
    [
        # A tail loss probe at the timeout, which is less than two round trips and 200 ms; then it doubles.
        ({0}, 0.3),
        ({0, 1}, 0.3 + 0.3),
        ({0, 1, 2}, 0.3 + 0.3 + 0.6),
    ],
)
def test_a_single_lost_segment_waits_for_a_timer_that_doubles(lost: set[int], after_s: float) -> None:
    one = flow(Way(lost))
    one.write(0.0, 1000)
    ((when, _),) = arrivals(one)
    assert after_s + HALF_S <= when <= after_s + HALF_S + 0.1


def test_followed_by_three_others_it_comes_a_round_trip_later_and_they_wait_for_it() -> None:
    one = flow(Way({0}))
    one.write(0.0, 5 * SEGMENT_BYTES)
    assert arrivals(one) == [(pytest.approx(0.15, abs=0.005), 5 * SEGMENT_BYTES)], "nothing overtakes it"


def test_followed_by_one_it_comes_when_a_quarter_of_a_round_trip_more_has_passed() -> None:
    down = Way({0})
    one = flow(down)
    one.write(0.0, 2 * SEGMENT_BYTES)
    ((when, size),) = arrivals(one)
    assert size == 2 * SEGMENT_BYTES
    assert 0.125 + HALF_S <= when <= 0.125 + HALF_S + 0.02


@pytest.mark.parametrize(("congestion", "kept"), [("cubic", 9), ("reno", 6)])
def test_a_loss_shrinks_the_window_of_those_that_take_it_for_congestion(congestion: str, kept: int) -> None:
    # Three acknowledgements have made it 13 by then.
    one = flow(Way({3}), congestion=congestion)
    one.write(0.0, 10 * SEGMENT_BYTES)
    arrivals(one)
    assert one.control.window == kept


def test_bbr_keeps_its_window() -> None:
    one = flow(Way({3}), congestion="bbr")
    one.write(0.0, 10 * SEGMENT_BYTES)
    arrivals(one)
    assert one.control.window >= 10


def test_a_timeout_that_lost_acknowledgements_alone_called_for_is_taken_back() -> None:
    one = flow(Way(), Way({0, 1, 2, 3}))
    one.write(0.0, 4 * SEGMENT_BYTES)
    arrivals(one, 0.3)
    before = one.control.window
    arrivals(one, 5.0)
    assert (before, one.control.window) == (10, 10)


def test_an_idle_connection_starts_from_ten_segments_again() -> None:
    down = Way()
    one = flow(down)
    one.write(0.0, 200 * SEGMENT_BYTES)
    one.advance(10.0)
    assert one.control.window > 40
    one.write(10.0, 100 * SEGMENT_BYTES)
    assert one.control.window == 10


@controls
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_every_byte_arrives_once_and_in_order_of_time(congestion: str, share: float) -> None:
    one = flow(Way(share=share), Way(share=share), congestion)
    rng = random.Random(4)
    now, written = 0.0, 0
    for _ in range(300):
        now += rng.expovariate(5)
        size = rng.randint(1, 9000)
        one.advance(now)
        one.write(now, size)
        written += size
    found = arrivals(one, 100_000.0)
    assert sum(size for _, size in found) == written
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert one.due() is None


def saturated(congestion: str, share: float) -> float:
    """Return segments a second that a greedy sender gets through."""
    one = flow(Way(share=share), Way(share=share), congestion)
    one.write(0.0, 6000 * SEGMENT_BYTES)
    last = arrivals(one, 100_000.0)[-1][0]
    return 6000 / last


@pytest.mark.parametrize("share", [0.01, 0.02, 0.05])
def test_a_loss_based_sender_gets_what_the_formula_says(share: float) -> None:
    # Mathis et al. 1997: 1.22 segments / (round trip x sqrt(loss)); CUBIC grows as Reno does at such windows.
    formula = 1.22 / (2 * HALF_S * share**0.5)
    assert 0.5 * formula <= saturated("reno", share) <= 1.2 * formula
    assert 0.5 * formula <= saturated("cubic", share) <= 1.2 * formula


@pytest.mark.slow
def test_bbr_gets_more_than_others_where_much_is_lost() -> None:
    rates: dict[str, float] = {congestion: saturated(congestion, 0.1) for congestion in CONTROLS}
    assert rates["bbr"] > 3 * max(rates["cubic"], rates["reno"])


def test_the_same_luck_is_the_same_connection() -> None:
    def sample(make: Callable[[], Flow]) -> list[tuple[float, int]]:
        one = make()
        one.write(0.0, 500_000)
        return arrivals(one)

    def make() -> Flow:
        return flow(Way(share=0.1), Way(share=0.1), "bbr")

    assert sample(make) == sample(make)
