"""Rule files as a backtest reads them: times, what each rule asks for, and what a recording can say of it."""

from __future__ import annotations

import pytest

from omniwatch.bundle import render
from omniwatch.desk.backtest import rules
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.rules import Rule, RuleSet, Standing, speech_names
from omniwatch.settings import Settings

TARGETS = [
    {"job": "omniwatch", "instance": "127.0.0.1:9842", "device": "orin"},
    {"job": "model_server", "instance": "127.0.0.1:8000", "device": "orin"},
]
HELD = speech_names() | {"omniwatch_source_up", "omniwatch_source_blind", "omniwatch_events_lost_total"}
TEXT = """
groups:
  - name: quick
    interval: 500ms
    rules:
      - record: job:streams:sum
        expr: sum(omni_streams)
      - alert: Crowd
        expr: job:streams:sum > 3  # too many
        for: 1m30s
        keep_firing_for: 1h
        labels: {severity: page, team: 7}
  - name: slow
    rules:
      - alert: Nothing
        expr: vector(1)
  - name: empty
"""


def alert(expression: str) -> Rule:
    return Rule("A", expression, 5)


def standing(expression: str, *others: Rule) -> tuple[Standing, list[str]]:
    return RuleSet([*others, alert(expression)], HELD, TARGETS).standing(alert(expression))


def recorded(name: str, expression: str) -> Rule:
    return Rule(name, expression, 5, is_alert=False)


def test_a_file_is_read_with_its_times_and_labels():
    record, crowd, nothing = rules.parse(TEXT, "x.yaml", 5)
    assert record == Rule("job:streams:sum", "sum(omni_streams)", 0.5, "x.yaml", "quick", is_alert=False)
    assert crowd == Rule(
        "Crowd",
        "job:streams:sum > 3",
        0.5,
        "x.yaml",
        "quick",
        90,
        3600,
        {"severity": "page", "team": "7"},
    )
    assert (nothing.interval_s, nothing.severity) == (5, "")


def test_every_rendered_rule_is_read_and_its_expression_understood():
    found = [
        rule
        for path, text in render.render(Settings()).items()
        if path.name.endswith(".rules.yaml")
        for rule in rules.parse(text, path.name, 5)
    ]
    names = {rule.name for rule in found}
    assert {"CodecDrift", "TokenRTT", "Watchdog", "StreamSilent"} <= names
    assert all(rules.asked(rule) for rule in found if "vector(" not in rule.expression)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups: {", "x.yaml: line 1: did not find expected"),
        ("groups: [{name: g, rules: [{alert: A}]}]", "x.yaml: Object missing required field `expr`"),
        ("groups: [{name: g, rules: [{alert: A, expr: 1, for: soon}]}]", "x.yaml: expected a duration"),
    ],
)
def test_a_file_that_is_none_is_said(text, message):
    with pytest.raises(BacktestError) as raised:
        rules.parse(text, "x.yaml", 5)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_comments_are_left_out_of_an_expression_and_quoted_signs_are_not():
    assert rules.uncommented('a{b="#1"} > 1 # c\n  and d') == 'a{b="#1"} > 1 \n  and d'


@pytest.mark.parametrize(
    ("expression", "lower"),
    [
        ("a > 5", False),
        ("omni_codec_drift_eta_seconds < 120 and abs(omni_codec_drift_ms) > 30", True),
        ('a{b=~"<x"} >= 1', False),
        ('a{b="c"} <= 0', True),
        ("up == 0", False),
        ("vector(1)", False),
    ],
)
def test_less_is_worse_where_the_first_comparison_says_so(expression, lower):
    assert alert(expression).hold.lower_is_worse is lower


@pytest.mark.parametrize(
    "expression",
    [
        "abs(omni_codec_drift_ms) > 60",
        "vector(1)",
        'rate(omni_token_rtt_seconds_bucket{le="0.75"}[5m]) > 1',
        '{__name__="omni_streams"} > 1',
        '{__name__=~"omni_.*"} > 1',
        "absent(omni_codec_drift_ms)",
        'omni_streams > 1 and up{job="omniwatch"} == 1',
        'omni_stream_silent_seconds > 5 unless on (device) up{job="model_server"} == 0',
        "round(increase(omniwatch_events_lost_total[5m])) >= 1",
    ],
)
def test_what_events_hold_is_told(expression):
    assert standing(expression) == (Standing.JUDGED, [])


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("absent(vllm:num_requests_running)", ["vllm:num_requests_running"]),
        ("omni_streams > 1 unless vllm:x > 1", ["vllm:x"]),
        ('up{job="uplink"} == 0', ['up{job="uplink"}']),
        ('up{instance!~"127.0.0.1:.*"} == 0', ["up"]),
        ('absent(up{job=~"node|windows"})', ['up{job=~"node|windows"}']),
        (
            "jetson_throttle_alert > 0 or omni_server_unit_state",
            ["jetson_throttle_alert", "omni_server_unit_state"],
        ),
        ('ALERTS{alertstate="firing"}', ["ALERTS"]),
        ("omniwatch_source_unread_bytes > 1", ["omniwatch_source_unread_bytes"]),
    ],
)
def test_what_no_event_holds_is_missing(expression, names):
    assert standing(expression) == (Standing.MISSING, names)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('up{job="omniwatch"} == 0', ["up"]),
        ('up{job="model_server"} == 0', ["up"]),
        ("up == 0", ["up"]),
        ('up{job=~"omni.*",device!~"nano.*"} == 0', ["up"]),
        ("omniwatch_source_up == 0 and max_over_time(omniwatch_source_up[6h]) == 1", ["omniwatch_source_up"]),
        ("omniwatch_source_blind == 1", ["omniwatch_source_blind"]),
    ],
)
def test_the_sidecars_own_health_is_assumed(expression, names):
    assert standing(expression) == (Standing.ASSUMED, names)


def test_a_recording_rule_stands_for_what_it_rests_on():
    good = recorded("a:b:c", "sum(omni_streams)")
    assert standing("a:b:c > 1", good) == (Standing.JUDGED, [])
    bad = recorded("d:e:f", "a:b:c / vllm:x")
    assert standing("d:e:f > 1", good, bad) == (Standing.MISSING, ["vllm:x"])
    assert standing("d:e:f > 1", good, recorded("d:e:f", "d:e:f + 1")) == (Standing.MISSING, ["d:e:f"])


def test_recording_rules_are_needed_in_the_order_they_rest_on_each_other():
    first = recorded("first", "sum(omni_streams)")
    second = recorded("second", "first * 2")
    third = recorded("third", "second + first")
    unused = recorded("unused", "omni_streams")
    rule = alert("third > 1 and first > 0")
    assert RuleSet([third, unused, second, rule, first], HELD, TARGETS).needed(rule) == [first, second, third]


def test_an_expression_that_is_none_names_file_and_rule():
    broken = Rule("A", "a > (1", 5, "x.yaml")
    with pytest.raises(BacktestError, match=r"^x\.yaml: A: unclosed left parenthesis$"):
        rules.asked(broken)


def test_of_conditions_joined_by_or_those_that_are_held_are_told():
    rule = Rule("A", 'label_replace(omni_streams > 9, "cause", "many", "", "") or (gone > 1 or up == 0)', 5)
    rules = RuleSet([rule], {"omni_streams"}, [{"job": "omniwatch"}])
    assert rules.standing(rule) == (Standing.JUDGED, ["gone"])
    told = 'label_replace(omni_streams{} > 9, "cause", "many", "", "") or up{} == 0'
    assert rules.judged_part(rule).expression == told
    other = Rule("B", "gone > 1 or up == 0", 5)
    assert rules.standing(other) == (Standing.MISSING, ["gone"])
    assert rules.standing(Rule("C", "up == 0 or up == 1", 5)) == (Standing.ASSUMED, ["up"])
