"""How often the verdict is right, on incidents made by physics. Their seeds are past those that limits were tuned on.

The bounds here only notice a change for the worse. The aim is the right cause of 95 % of the bad turns, a wrong one called seen
in 1 %, and a fault-free turn called bad in 1 of 500. `make bench` prints the figures of 2,000 incidents; here are 200 of them.
Of the faults that no evidence shows, the bound is the aim.
"""

from __future__ import annotations

import pytest

from helpers.verdict_accuracy import Tally, judge_incidents

pytestmark = pytest.mark.slow

INCIDENTS = 200
UNSEEN = 40


@pytest.fixture(scope="module")
def tally() -> Tally:
    return judge_incidents(range(2000, 2000 + INCIDENTS), range(2000, 2000 + UNSEEN))


def test_the_right_cause(tally):
    count = tally.of()
    assert count.turns > INCIDENTS / 3
    assert count.right >= 0.93 * count.turns, tally.table()
    assert count.wrong_seen <= 0.05 * count.turns, tally.table()


def test_one_of_two(tally):
    count = tally.of(mixed=True)
    assert count.turns > INCIDENTS / 8
    assert count.right >= 0.93 * count.turns, tally.table()


def test_a_turn_without_a_fault_is_seldom_called_bad(tally):
    assert tally.fine > INCIDENTS
    assert tally.called_bad <= 0.01 * tally.fine, tally.table()


def test_what_no_evidence_shows_is_not_blamed_on_anything(tally):
    quiet, turns = tally.not_blamed()
    assert turns > UNSEEN / 2
    assert quiet >= 0.95 * turns, tally.table()
