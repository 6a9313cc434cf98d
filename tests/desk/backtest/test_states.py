"""The life of alerts in a backtest: compared with promtool's rule engine and with the replay's own two rules."""

from __future__ import annotations

import random

import pytest
import yaml

from helpers.bundles import promtool
from helpers.needs import KEEP_FIRING
from omniwatch.core.rule_states import rule_states
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.rules import Rule
from omniwatch.desk.backtest.states import Episode, Hold, Series, episodes, merged
from omniwatch.desk.backtest.templates import alerts

FIFTEEN = Hold(15)


def lives(*values: float | None, hold: Hold = FIFTEEN) -> list[Episode]:
    """The episodes of an expression's values at evaluations five seconds apart from 0 on."""
    found = {5.0 * number: value for number, value in enumerate(values) if value is not None}
    return episodes(found, [5.0 * number for number in range(len(values))], hold)


def test_an_alert_is_pending_then_firing_then_over():
    assert lives(None, 61, 62, 65, 64, 63, None, None) == [Episode(5, 65, 15, firing_t=20, over_t=30)]


def test_one_that_is_gone_too_soon_never_fired():
    assert lives(61, 62, 61, None, 61) == [
        Episode(0, 62, 5, over_t=15),
        Episode(20, 61, 20),
    ]


def test_without_a_wait_it_fires_at_the_evaluation_that_finds_it():
    assert lives(None, 7, None, hold=Hold()) == [Episode(5, 7, 5, firing_t=5, over_t=10)]


def test_an_alert_that_is_kept_firing_outlives_short_absences():
    hold = Hold(5, 15)
    assert lives(1, 1, None, None, 1, None, None, None, None, hold=hold) == [
        Episode(0, 1, 0, firing_t=5, over_t=40)
    ]
    assert lives(1, None, 1, None, hold=hold) == [Episode(0, 1, 0, over_t=5), Episode(10, 1, 10, over_t=15)]


def test_the_worst_value_is_the_smallest_where_less_is_worse():
    (found,) = lives(90, 40, 70, hold=Hold(0, 0, True))
    assert (found.worst, found.worst_t) == (40, 5)


def test_no_number_is_no_worst_value_once_there_is_one():
    (found,) = lives(float("nan"), 3, 2)
    assert (found.worst, found.worst_t) == (3, 5)


def test_the_metrics_name_is_no_label_of_an_alert_and_two_series_may_not_be_one():
    first = Series({"__name__": "a", "x": "1"}, [(0, 1.0)])
    later = Series({"__name__": "b", "x": "1"}, [(5, 2.0)])
    assert merged([first, later]) == {(("x", "1"),): {0: 1.0, 5: 2.0}}
    with pytest.raises(BacktestError, match="two series are one alert"):
        merged([first, Series({"__name__": "b", "x": "1"}, [(0, 2.0)])])


STREAMS = [Series({"__name__": "a", "stream": n, "job": "x"}, [(0, 1.0), (5, 2.0)]) for n in ("1", "0")]


@pytest.mark.parametrize(
    ("given", "streams"),
    [
        ({"severity": "page"}, ["0", "1"]),
        ({"stream": "s{{ $labels.stream }}"}, ["s0", "s1"]),
        ({"stream": "{{$labels.job}}-{{ .Labels.stream }}{{ $labels.absent }}"}, ["x-0", "x-1"]),
        ({"stream": "{{ printf `s%s` $labels.stream }}"}, ["0", "1"]),
        (
            {"stream": "all", "severity": "{{ if gt $value 0.5 }}page{{ else }}ticket{{ end }}"},
            ["all", "all"],
        ),
    ],
)
def test_a_label_that_is_a_template_tells_alerts_apart(given, streams):
    found = alerts(given, STREAMS)
    assert [(dict(labels)["stream"], values) for labels, values in found] == [
        (stream, {0: 1.0, 5: 2.0}) for stream in streams
    ]
    assert all("__name__" not in dict(labels) for labels, _ in found)


def test_a_severity_that_depends_on_the_value_is_templated():
    rule = Rule("A", "x", 5, labels={"severity": "{{ if gt $value 0.5 }}page{{ else }}ticket{{ end }}"})
    assert rule.severity == "templated"
    assert [dict(labels)["severity"] for labels, _ in alerts(rule.labels, STREAMS)] == ["templated"] * 2


def test_a_template_that_says_nothing_is_no_label_and_one_that_makes_two_series_one_is_refused():
    assert dict(alerts({"team": "{{ $labels.team }}"}, STREAMS)[0][0]) == {"job": "x", "stream": "0"}
    with pytest.raises(BacktestError, match="two series are one alert"):
        alerts({"stream": "{{ $labels.job }}"}, STREAMS)


def spoiled(luck: random.Random, length: int) -> list[float | None]:
    values: list[float | None] = []
    while len(values) < length:
        values += [luck.choice([0.0, 60.0, 60.1, 75.0, 90.0, None])] * luck.randint(1, 7)
    return values[:length]


def over_60(values: list[float | None]) -> dict[float, float]:
    return {5.0 * n: value for n, value in enumerate(values) if value is not None and value > 60}


def test_the_replays_own_rules_agree():
    luck = random.Random(3)
    fired = 0
    for _ in range(50):
        values = spoiled(luck, 40)
        times = [5.0 * n for n in range(40)]
        spans = rule_states([(t, value) for t, value in zip(times, values, strict=True)], 60, 15, 5)
        found = episodes(over_60(values), times, Hold(15))
        assert [(s.start_t, s.end_t if s.over else None) for s in spans if s.state == "firing"] == [
            (e.firing_t, e.over_t) for e in found if e.fired
        ]
        waits = [(s.start_t, s.end_t if s.over else None) for s in spans if s.state == "pending"]
        assert waits == [(e.pending_t, e.firing_t if e.fired else e.over_t) for e in found]
        fired += sum(e.fired for e in found)
    assert fired > 30


def state_at(found: list[Episode], at: float) -> str:
    for episode in found:
        if episode.pending_t <= at and (episode.over_t is None or at < episode.over_t):
            return "firing" if episode.firing_t is not None and at >= episode.firing_t else "pending"
    return ""


@pytest.mark.parametrize(("for_s", "keep_s"), [(0, 0), (12, 0), (15, 10), (0, 25), (20, 20)])
@pytest.mark.programs
@pytest.mark.needs(KEEP_FIRING)
def test_prometheus_own_rule_engine_agrees_at_every_evaluation(tmp_path, for_s, keep_s):
    luck = random.Random(f"{for_s} {keep_s}")
    tests, seen = [], 0
    for _ in range(15):
        values = spoiled(luck, 40)
        found = episodes(over_60(values), [5.0 * n for n in range(40)], Hold(for_s, keep_s))
        states = [state_at(found, 5.0 * n) for n in range(40)]
        seen += sum(map(bool, states))
        tests.append(
            {
                "interval": "5s",
                "input_series": [
                    {
                        "series": "drift",
                        "values": " ".join("stale" if v is None else f"{v:g}" for v in values),
                    }
                ],
                "promql_expr_test": [
                    {
                        "expr": "count by (alertstate) (ALERTS)",
                        "eval_time": f"{5 * n}s",
                        "exp_samples": [{"labels": f'{{alertstate="{state}"}}', "value": 1}] if state else [],
                    }
                    for n, state in enumerate(states)
                ],
            }
        )
    rule = {"alert": "Drift", "expr": "drift > 60", "for": f"{for_s}s", "keep_firing_for": f"{keep_s}s"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    cases = {"rule_files": ["rules.yaml"], "evaluation_interval": "5s", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases))
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen > 100
