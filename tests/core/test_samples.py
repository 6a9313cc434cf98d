"""Samples of the device: what was lost between two of them, and the causes that rest on them alone."""

from __future__ import annotations

import pytest

from core.test_verdict import SLOW, answered, cause, starving
from omniwatch.core.samples import KEPT, Sample, Samples, Spell


def spells(*samples: Sample) -> list[Spell]:
    return list(Samples(samples).within(0, 1e9))


def test_what_was_lost_between_two_samples():
    before = Sample(10, throttled_s=5, clock=1.0, stalled_s=1, swapped=0, reclaims=0)
    after = Sample(11, throttled_s=5.4, clock=0.5, stalled_s=1.2, swapped=5000, reclaims=1)
    assert spells(before, after) == [Spell(10, 11, 0.4, 0.25, 0.5)]


def test_what_there_is_no_sensor_for_is_absent_and_not_0():
    assert spells(Sample(10), Sample(11)) == [Spell(10, 11, None, None, None)]
    assert spells(Sample(10, clock=1.0), Sample(11, clock=1.0)) == [Spell(10, 11, None, 0.0, None)]
    assert spells(Sample(10, swapped=7), Sample(11, swapped=7)) == [Spell(10, 11, None, None, 0.0)]


def test_no_more_is_lost_than_the_time_there_was():
    """A cgroup's throttled time is that of all its CPUs together."""
    assert spells(Sample(10, throttled_s=0), Sample(11, throttled_s=7))[0].quota == 1.0


def test_a_counter_that_began_anew_says_nothing():
    assert spells(Sample(10, throttled_s=9), Sample(11, throttled_s=2))[0].quota is None


def test_samples_far_apart_or_out_of_order_say_nothing_of_the_time_between():
    assert spells(Sample(10, throttled_s=0), Sample(14, throttled_s=3)) == []
    assert spells(Sample(10, throttled_s=0), Sample(9, throttled_s=3)) == []


def test_ten_minutes_are_kept():
    ring = Samples(Sample(float(n), throttled_s=0) for n in range(3 * KEPT))
    assert len(list(ring.within(0, 1e9))) == KEPT


LOST = {"quota": (0.7, 0.0, 0.0), "heat": (0.0, 0.7, 0.0), "memory": (0.0, 0.0, 0.7)}


def seconds(name: str, begin: float = 100.0, share: float = 1.0) -> list[Spell]:
    """Twelve seconds in which so much of 0.7 s each was lost by one sensor; the others saw nothing."""
    return [Spell(begin + n, begin + n + 1, *(share * s for s in LOST[name])) for n in range(12)]


@pytest.mark.parametrize("name", LOST)
def test_each_cause_by_its_evidence_and_not_without_it(name):
    def late(found: list[Spell]) -> str:
        record = answered(thinking=1.2)
        record.note_device(found)
        return cause("late", record)[0]

    def starved(found: list[Spell]) -> str:
        record = starving(*SLOW)
        record.note_device(found)
        return cause("starved", record)[0]

    assert (late(seconds(name)), starved(seconds(name))) == (name, name)
    assert (late([]), starved([])) == ("thinking", "pace"), "no samples"
    assert (late(seconds(name, share=0.0)), starved(seconds(name, share=0.0))) == ("thinking", "pace")
    assert (late(seconds(name, begin=200)), starved(seconds(name, begin=200))) == ("thinking", "pace")
    assert (late(seconds(name, share=0.2)), starved(seconds(name, share=0.2))) == ("thinking", "pace")
    blind = [spell._replace(**{name: None}) for spell in seconds(name)]
    assert (late(blind), starved(blind)) == ("thinking", "pace"), "a device without this sensor"


def test_a_sensor_that_is_missing_is_named_in_the_numbers():
    from core.test_verdict import the

    record = answered(thinking=1.2)
    record.note_device([Spell(100, 101, 0.1, None, None)])
    numbers = the("late", record).numbers
    assert (numbers["quota_ms"], numbers["no_sensor"]) == (100.0, "heat memory")
    assert "heat_ms" not in numbers


def test_of_two_the_one_that_covers_more():
    record = answered(thinking=1.2)
    record.note_device([Spell(100, 101, 0.6, 0.7, None), Spell(101, 102, 0.1, 0.3, None)])
    assert cause("late", record)[0] == "heat"


def test_what_the_device_shows_explains_no_network():
    record = answered(network=1.2)
    record.note_device(seconds("quota"))
    assert cause("late", record)[0] == "network"
