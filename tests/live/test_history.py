"""The ring of samples: gaps, bounds, a restart, a clock that is set, and the rules over it."""

from __future__ import annotations

import tracemalloc
from math import isnan

import msgspec
import pytest

from helpers.events import T0
from omniwatch.core.rule_states import Sample, rule_states
from omniwatch.live.history import SECONDS, VERSION, History, Kept
from omniwatch.settings import Alerts

ALERTS = Alerts()


def filled(*values: float | None, slot: int = 0) -> History:
    """Drifts of a slot, a second apart from T0 on."""
    history = History(ALERTS)
    for number, drift_ms in enumerate(values):
        t = T0 + number
        history.add(number, t, [(slot, Sample(t, drift_ms, None, "client"))])
    return history


def drifts(history: History, slot: int = 0) -> list[float | None]:
    return [None if isnan(value) else value for value in history.columns()[slot][0]]


def spans(history: History) -> list[tuple[str, float, float, bool]]:
    return [
        (span.state, span.start_t - T0, span.end_t - T0, span.over)
        for rule, _, span in history.spans()
        if rule == "CodecDrift"
    ]


def test_what_was_shown_stands_at_its_second_and_nothing_is_a_gap():
    history = filled(None, 12.5, None, -70.0)
    assert drifts(history) == [None, 12.5, None, -70.0][-len(drifts(history)) :]
    assert (history.first, history.number, history.t) == (0, 3, T0 + 3)


def answered(vantage: str, seconds: int) -> History:
    """Round trips past the threshold, all by one who measures."""
    history = History(ALERTS)
    for number in range(seconds):
        history.add(number, T0 + number, [(2, Sample(T0 + number, None, 900.0, vantage))])
    return history


@pytest.mark.parametrize("vantage", ["client", "server"])
def test_a_round_trip_is_judged_by_who_measured_it_also_after_a_restart(vantage):
    """Of two who measure, each has a series of its own, so a change between them begins the rule anew."""
    history = answered(vantage, 31)
    assert [abs(value) for value in history.columns()[2][1]][-2:] == [900, 900]
    restored = History(ALERTS)
    restored.restore(history.kept(), T0 + 31)
    for number in range(SECONDS, SECONDS + 30):
        t = T0 + number - SECONDS + 31
        restored.add(number, t, [(2, Sample(t, None, 900.0, vantage))])
    assert restored.now(2)["TokenRTT"].start_t == T0 + 20
    other = {"client": "server", "server": "client"}[vantage]
    restored.add(SECONDS + 30, T0 + 61, [(2, Sample(T0 + 61, None, 900.0, other))])
    restored.add(SECONDS + 34, T0 + 65, [(2, Sample(T0 + 65, None, 900.0, other))])
    assert (restored.now(2)["TokenRTT"].state, restored.now(2)["TokenRTT"].start_t) == ("pending", T0 + 65)


def test_numbers_that_were_passed_over_are_gaps():
    history = filled(5.0, 5.0)
    history.add(5, T0 + 5, [(0, Sample(T0 + 5, 6.0))])
    assert drifts(history) == [5, 5, None, None, None, 6]


def test_a_rule_holds_over_a_second_that_was_missed_and_not_over_a_stop():
    for missed, start_s in ((2, 0), (10, 30)):
        history = filled(*[70.0] * 18)
        for number in range(18 + missed, 40):
            history.add(number, T0 + number, [(0, Sample(T0 + number, 70.0))])
        assert history.now(0)["CodecDrift"].state == ("firing" if missed == 2 else "pending")
        begins = [start for state, start, _, _ in spans(history) if state == "pending"]
        assert begins[-1] == start_s


def test_the_states_are_those_of_rule_states():
    values = [None, *[61.0] * 33, 10.0, *[-61.0] * 12, None, None, None, *[75.0] * 40]
    history = filled(*values)
    begun = values.index(61.0)
    sizes = [(T0 + n, v if v is None else abs(v)) for n, v in enumerate(values)][begun:]
    expected = rule_states(sizes, ALERTS.drift_page_ms, ALERTS.drift_for_s, ALERTS.evaluation_interval_s)
    assert spans(history) == [(s.state, s.start_t - T0, s.end_t - T0, s.over) for s in expected]
    assert {state for state, *_ in spans(history)} == {"pending", "firing"}


def test_a_quarter_of_an_hour_is_kept_and_then_forgotten_with_its_states():
    history = filled(*[70.0] * 30, *[0.0] * (SECONDS + 30))
    assert len(drifts(history)) == SECONDS
    assert history.first == 60
    assert spans(history) == []
    for number in range(history.number + 1, history.number + SECONDS + 1):
        history.add(number, T0 + number, [])
    assert history.columns() == {}


def test_a_clock_that_is_set_moves_all_that_was():
    history = filled(*[70.0] * 40)
    before = spans(history)
    history.clock_set(-3600)
    assert history.t == T0 + 39 - 3600
    assert spans(history) == [(state, a - 3600, b - 3600, over) for state, a, b, over in before]
    history.add(40, history.t + 1, [(0, Sample(history.t + 1, 70.0))])
    assert len(drifts(history)) == 41


def test_new_settings_judge_what_was_kept():
    history = filled(*[70.0] * 40)
    history.configure(Alerts(drift_page_ms=80))
    assert spans(history) == []


def test_a_restart_goes_on_after_a_gap_as_long_as_it_was_away():
    restored = History(ALERTS)
    restored.restore(filled(1.0, 2.0, 3.0).kept(), T0 + 2 + 10)
    assert restored.t == T0 + 2
    restored.add(restored.number + 10, T0 + 12, [(0, Sample(T0 + 12, 4.0))])
    assert drifts(restored)[-13:] == [1, 2, 3, *[None] * 9, 4]


@pytest.mark.parametrize(("now", "length"), [(T0 - 5000, SECONDS), (T0 + 2 + SECONDS, 0)])
def test_a_clock_set_back_while_it_was_away_leaves_a_second_and_a_long_time_leaves_nothing(now, length):
    restored = History(ALERTS)
    restored.restore(filled(1.0, 2.0, 3.0).kept(), now)
    assert restored.number + 1 == length
    assert not length or restored.t == now - 1


@pytest.mark.parametrize(
    "kept",
    [
        Kept(VERSION + 1, T0, {}),
        Kept(VERSION, T0, {0: (b"\0" * 4 * SECONDS, b"\0" * 4)}),
        Kept(VERSION, T0, {0: (b"\0" * 3, b"\0" * 4 * SECONDS)}),
    ],
)
def test_another_format_is_refused(kept):
    history = History(ALERTS)
    with pytest.raises(ValueError, match=r"version|samples|bytes"):
        history.restore(kept, T0 + 1)
    assert (history.number, history.columns()) == (-1, {})


@pytest.mark.slow
def test_64_listeners_take_less_than_a_megabyte():
    tracemalloc.start()
    try:
        history = History(ALERTS)
        for number in range(SECONDS + 10):
            t = T0 + number
            history.add(
                number, t, [(slot, Sample(t, 70.0 * (number % 40 > 20), 500.0)) for slot in range(64)]
            )
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rings = 64 * 2 * 4 * SECONDS
    assert rings < size < 1_000_000, f"{size:,} bytes"
    assert len(msgspec.msgpack.encode(history.kept())) < rings + 2000
