"""When a rule would have been pending and firing: the edges, and a comparison with Prometheus itself."""

from __future__ import annotations

import random
from math import ceil, nan

import yaml

from helpers.bundles import promtool
from omniwatch.core.rule_states import Span, rule_states

T0 = 1_700_000_000.0


def states(*values: float | None, for_s: float = 15, eval_s: float = 5) -> list[Span]:
    """The states of "> 60" over samples one second apart from 0 on."""
    return rule_states(list(enumerate(values)), 60, for_s, eval_s)


def test_a_rule_that_holds_is_pending_then_firing_until_the_first_evaluation_below():
    assert states(*[0] * 7, *[61] * 26, *[0] * 10) == [Span("pending", 10, 25), Span("firing", 25, 35)]


def test_what_holds_between_two_evaluations_is_not_seen():
    assert states(*[0] * 6, *[99] * 4, *[0] * 9) == []


def test_exactly_at_the_threshold_is_not_over_it():
    assert states(*[60] * 60) == []
    assert states(*[60.001] * 60)[-1].state == "firing"


def test_it_fires_once_the_time_is_full_not_an_evaluation_later():
    assert states(*[61] * 16) == [Span("pending", 0, 15), Span("firing", 15, 15, over=False)]
    assert states(*[61] * 15) == [Span("pending", 0, 14, over=False)]
    assert states(*[61] * 30, for_s=12) == [Span("pending", 0, 15), Span("firing", 15, 29, over=False)]


def test_a_dip_at_an_evaluation_begins_the_wait_anew():
    flapping = [*[61] * 10, 59, *[61] * 9, 59, *[61] * 17]
    assert states(*flapping) == [
        Span("pending", 0, 10),
        Span("pending", 15, 20),
        Span("pending", 25, 37, over=False),
    ]


def test_a_series_that_vanishes_takes_its_alert_along():
    back_in_time = [*[61] * 22, None, None, None, *[61] * 21]
    assert states(*back_in_time) == [Span("pending", 0, 15), Span("firing", 15, 45, over=False)]
    assert states(*[61] * 22, None, None, None, None, *[61] * 9) == [
        Span("pending", 0, 15),
        Span("firing", 15, 25),
        Span("pending", 30, 34, over=False),
    ]


def test_a_series_that_comes_back_after_a_long_absence_begins_anew():
    samples = (
        [(float(t), 61.0) for t in range(20)] + [(20.0, None)] + [(float(t), 61.0) for t in range(1007, 1031)]
    )
    assert rule_states(samples, 60, 15, 5) == [
        Span("pending", 0, 15),
        Span("firing", 15, 20),
        Span("pending", 1010, 1025),
        Span("firing", 1025, 1030, over=False),
    ]


def test_without_a_wait_it_fires_at_once():
    assert states(*[0] * 5, *[61] * 3, *[0] * 4, for_s=0) == [Span("firing", 5, 10)]


def test_no_number_is_over_no_threshold_and_no_samples_are_no_states():
    assert states(*[nan] * 40) == []
    assert states() == []


def test_evaluations_fall_on_multiples_of_their_interval_wherever_samples_begin():
    samples = [(T0 + 3 + t, 61.0) for t in range(40)]
    assert rule_states(samples, 60, 15, 5)[0] == Span("pending", T0 + 5, T0 + 20)
    assert rule_states(samples, 60, 15, 7)[0].start_t == ceil((T0 + 3) / 7) * 7


def test_a_clock_that_is_set_back_begins_the_rule_anew():
    samples = [(1000.0 + t, 61.0) for t in range(20)] + [(500.0 + t, 61.0) for t in range(20)]
    assert rule_states(samples, 60, 15, 5) == [
        Span("pending", 1000, 1015),
        Span("firing", 1015, 1015),
        Span("pending", 500, 515),
        Span("firing", 515, 519, over=False),
    ]


def test_samples_rarer_than_evaluations_hold_until_the_next():
    samples = [(0.0, 61.0), (30.0, 0.0), (60.0, 61.0), (90.0, 61.0)]
    assert rule_states(samples, 60, 15, 5) == [
        Span("pending", 0, 15),
        Span("firing", 15, 30),
        Span("pending", 60, 75),
        Span("firing", 75, 90, over=False),
    ]


def random_series(luck: random.Random) -> list[float | None]:
    """A minute and a half that crosses the threshold, touches it, vanishes and comes back."""
    values: list[float | None] = []
    while len(values) < 90:
        values += [luck.choice([0.0, 59.9, 60.0, 60.1, 75.0, 75.0, 75.0, None])] * luck.randint(1, 18)
    return values[:90]


def in_promtools_words(values: list[float | None]) -> str:
    words = []
    for number, value in enumerate(values):
        vanished = value is None and number and values[number - 1] is not None
        words.append("stale" if vanished else "_" if value is None else f"{value:g}")
    return " ".join(words)


def states_at(found: list[Span], at: float) -> set[str]:
    return {s.state for s in found if s.start_t <= at and (at < s.end_t or (not s.over and at <= s.end_t))}


def test_the_states_are_those_prometheus_finds(tmp_path):
    """Thirty random series through promtool: at every evaluation it agrees on pending and on firing."""
    luck = random.Random(7)
    tests = []
    for _ in range(30):
        values = random_series(luck)
        found = rule_states(list(enumerate(values)), 60, 15, 5)
        expected = [
            {
                "expr": "count by (alertstate) (ALERTS)",
                "eval_time": f"{at}s",
                "exp_samples": [
                    {"labels": f'{{alertstate="{state}"}}', "value": 1}
                    for state in sorted(states_at(found, at))
                ],
            }
            for at in range(0, 90, 5)
        ]
        series = [{"series": "drift", "values": in_promtools_words(values)}]
        tests.append({"interval": "1s", "input_series": series, "promql_expr_test": expected})
    rule = {"alert": "Drift", "expr": "drift > 60", "for": "15s"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    cases = {"rule_files": ["rules.yaml"], "evaluation_interval": "5s", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases))
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(len(case["exp_samples"]) for test in tests for case in test["promql_expr_test"]) > 50
