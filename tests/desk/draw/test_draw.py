"""Dashboards as pictures, the pure part: what is asked, what the answers become, in which words."""

from __future__ import annotations

import json
import math
from pathlib import PurePosixPath
from typing import Any

import pytest

from helpers.lints.dashboards import UNITS
from omniwatch.bundle import dashboard_json, render
from omniwatch.desk.draw import units
from omniwatch.desk.draw.fields import QueryResult, appearance, legend, levels
from omniwatch.desk.draw.model import Cell, Chart, Grid, Lanes, Level, Nothing, Tiles
from omniwatch.desk.draw.panels import NO_DATA, interrupted, shown
from omniwatch.desk.draw.prometheus import Series, series
from omniwatch.desk.draw.queries import DrawError, Query, queries
from omniwatch.desk.draw.sheet import sheet
from omniwatch.desk.draw.window import Window, duration, rate_s, seconds, step_s
from omniwatch.settings import Settings

RENDERED = render.render(Settings())
HALF_HOUR = Window(1_768_478_403.0, 1_768_480_203.0)


def model(name: str) -> dict[str, Any]:
    return json.loads(RENDERED[PurePosixPath(f"dashboards/{name}.json")])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (0.25, "s", "250 ms"),
        (0.0000012, "s", "1.20 µs"),
        (1.5, "s", "1.50 s"),
        (90, "s", "1.50 min"),
        (7200, "s", "2 hour"),
        (-72.5, "ms", "-72.5 ms"),
        (1500, "ms", "1.50 s"),
        (0.75, "ms", "0.750 ms"),
        (0.333333, "percentunit", "33.3%"),
        (1, "percentunit", "100%"),
        (1536, "bytes", "1.50 KiB"),
        (3 * 2**30, "bytes", "3 GiB"),
        (1_300_500_000, "hertz", "1.30 GHz"),
        (0.5, "watt", "500 mW"),
        (2500, "Bps", "2.50 kB/s"),
        (54.26, "celsius", "54.3 °C"),
        (-500, "ppm", "-500 ppm"),
        (12, "opm", "12 ops/m"),
        (1200, "cps", "1.20K c/s"),
        (1234, "short", "1.23 K"),
        (1234, "none", "1234"),
        (5, "parsec", "5 parsec"),
        (math.inf, "s", "∞"),
        (-math.inf, "s", "-∞"),
        (math.nan, "s", "NaN"),
    ],
)
def test_a_value_reads_as_in_grafana(value, unit, text):
    assert units.text(value, unit) == text


def test_every_unit_that_the_dashboards_may_have_is_known():
    assert set(units.UNITS) >= UNITS


def test_an_axis_has_no_idle_zeros():
    assert [units.tick(value, "s") for value in (0, 0.3 / 3 * 5, 1.5, 120)] == [
        "0 s",
        "500 ms",
        "1.5 s",
        "2 min",
    ]


@pytest.mark.parametrize(
    ("points", "least_s", "step"),
    [(1440, 1, 1.0), (288, 1, 5.0), (192, 1, 10.0), (288, 15, 15), (288, 300, 300), (24, 1, 60.0)],
)
def test_steps_are_round_and_no_finer_than_the_panel_or_the_scrapes(points, least_s, step):
    assert step_s(HALF_HOUR, points, least_s) == step


def test_windows_are_grafanas():
    assert rate_s(1, 1) == 4
    assert rate_s(10, 1) == 11
    assert HALF_HOUR.aligned(10) == (1_768_478_400, 1_768_480_200)
    assert [seconds(text) for text in ("250ms", "90s", "30m", "2h")] == [0.25, 90, 1800, 7200]
    assert [duration(s) for s in (0.25, 1.5, 61.0)] == ["250ms", "1500ms", "61s"]
    for wrong in ("", "30", "m", "0s", "-5m"):
        with pytest.raises(ValueError, match="expected a time such as"):
            seconds(wrong)


def asked(name: str, **choices: list[str]) -> dict[tuple[str, str], Query]:
    return {(q.place, q.ref): q for q in queries(model(name), HALF_HOUR, choices, 1.0)}


def test_all_is_everything_and_a_choice_is_that_value_alone():
    drift = asked("streaming")["1", "A"]
    assert drift.expression == 'omni_codec_drift_ms{job=~".+",device=~".+",stream=~".+"}'
    assert (drift.window, drift.step_s) == (HALF_HOUR.aligned(10), 10)
    one = asked("streaming", device=["orin.1"], stream=["0", "2"])["1", "A"]
    assert one.expression == r'omni_codec_drift_ms{job=~".+",device=~"orin\\.1",stream=~"(0|2)"}'


def test_windows_follow_the_step_and_the_panels_own_shortest():
    speaking, out_of_sync = asked("streaming")["13", "B"], asked("streaming")["6", "A"]
    assert "omni_audio_seconds_total{" in speaking.expression
    assert "[11s]" in speaking.expression
    ended = asked("streaming")["8", "A"]
    assert ("[300s]" in ended.expression, ended.step_s) == (True, 75), "events that are seconds apart"
    assert "[301s]" in out_of_sync.expression
    assert out_of_sync.step_s == 300
    assert "[20s]" in asked("model-server")["15", "A"].expression, (
        "four scrapes of a job that has longer ones"
    )


def test_a_stat_asks_for_the_end_and_its_range():
    restarts = asked("device")["7", "A"]
    assert "[1800s]" in restarts.expression
    assert (restarts.step_s, restarts.window.end) == (0, HALF_HOUR.end)


def test_annotations_are_asked_for_with_the_panels():
    assert asked("streaming", device=["orin"])["Pages", ""].expression == (
        'ALERTS{alertstate="firing",severity="page",device=~"orin"}'
    )


def test_a_choice_that_the_dashboard_does_not_have_is_refused():
    with pytest.raises(
        DrawError, match=r"^no variable 'city' on omni-streaming; there are job, server_job, device, stream$"
    ):
        asked("streaming", city=["x"])


def test_every_query_of_every_dashboard_is_asked_with_nothing_left_in_it():
    for name in ("device", "fleet", "model-server", "resumption", "streaming"):
        found = asked(name)
        places = {place for place, _ in found}
        assert places >= {str(panel["id"]) for panel in dashboard_json.panels(model(name))}
        assert [q.expression for q in found.values() if "$" in q.expression] == []


def answer(*found: Series, name: str = "{{device}}", step: float = 10.0, ref: str = "A") -> QueryResult:
    return QueryResult(Query("1", ref, name, "up", Window(0, 100), step), found)


def one(*values: float, step: float = 10.0, **labels: str) -> Series:
    return Series(labels, [(n * step, value) for n, value in enumerate(values)])


def panel(kind: str, custom: dict[str, Any] | None = None, **field: Any) -> dict[str, Any]:
    return {"type": kind, "id": 1, "fieldConfig": {"defaults": {"custom": custom or {}, **field}}}


def steps(*pairs: tuple[float | None, str]) -> dict[str, Any]:
    return {"steps": [{"value": value, "color": colour} for value, colour in pairs]}


def test_a_legend_names_labels_and_leaves_out_what_is_not_there():
    assert legend("{{device}} stream {{ stream }}{{x}}", {"device": "orin", "stream": "3"}) == "orin stream 3"
    assert legend("", {"__name__": "up", "job": "a"}) == 'up{job="a"}'


def test_a_hole_interrupts_a_curve_and_so_does_what_is_no_number():
    points = interrupted([(0, 1.0), (10, 2.0), (40, 3.0), (50, math.inf)], 10)
    assert [t for t, _ in points] == [0, 10, 20, 30, 40, 50]
    assert [math.isnan(value) for _, value in points] == [False, False, True, True, False, True]


def test_curves_keep_their_values_unit_and_thresholds():
    field = {"unit": "ms", "min": 0, "thresholds": steps((None, "green"), (60, "red"))}
    drawn = shown(
        panel("timeseries", {"thresholdsStyle": {"mode": "dashed"}}, **field), [answer(one(1, 2, device="a"))]
    )
    assert isinstance(drawn, Chart)
    assert [(curve.name, list(curve.points)) for curve in drawn.curves] == [("a", [(0, 1), (10, 2)])]
    assert (drawn.unit, drawn.low, drawn.high, drawn.lines, drawn.bands) == ("ms", 0, None, True, False)
    assert drawn.levels == [Level(None, "green"), Level(60, "red")]


def test_a_legend_has_what_the_panel_asks_for_and_a_colour_what_it_means():
    custom = {"stacking": {"mode": "normal"}}
    drawn = shown(
        {
            **panel("timeseries", custom, unit="s"),
            "options": {"legend": {"calcs": ["lastNotNull", "max"]}},
            "fieldConfig": {
                "defaults": {"unit": "s", "custom": custom},
                "overrides": [
                    {
                        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"},
                        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
                    }
                    for pattern, colour in (("b", "green"), ("^bad", "red"))
                ],
            },
        },
        [answer(one(1, 3, 2, device="a"), one(4, 5, math.nan, device="bad"))],
    )
    assert isinstance(drawn, Chart)
    assert [(curve.colour, curve.ends) for curve in drawn.curves] == [
        ("", "last 2 s, max 3 s"),
        ("red", "last 5 s, max 5 s"),
    ]


def test_a_stack_adds_up_and_what_is_missing_adds_nothing():
    custom = {"stacking": {"mode": "normal"}}
    later = Series({"device": "b"}, [(10.0, 5.0), (20.0, math.nan)])
    drawn = shown(panel("timeseries", custom), [answer(one(1, 2, 3, device="a"), later)])
    assert isinstance(drawn, Chart)
    first, second = drawn.curves
    assert [y for _, y in first.points] == [1, 2, 3]
    assert [y for _, y in second.points] == [1, 7, 3]
    assert list(second.base) == [1, 2, 3]


def test_a_stack_is_nothing_while_none_of_its_series_has_a_value():
    found = Series({"device": "a"}, [(0, 1.0), (30, 1.0)])
    drawn = shown(panel("timeseries", {"stacking": {"mode": "normal"}}), [answer(found)])
    assert isinstance(drawn, Chart)
    assert drawn.curves[0].points == [(0, 1), (10, 0), (20, 0), (30, 1)]


@pytest.mark.parametrize("kind", ["timeseries", "stat", "state-timeline", "table"])
def test_nothing_is_said_to_be_nothing(kind):
    assert shown(panel(kind), [answer(), answer(ref="B")]) == NO_DATA == Nothing("No data")


def test_numbers_that_are_none_are_no_data():
    assert shown(panel("timeseries"), [answer(one(math.nan, math.inf, device="a"))]) == NO_DATA
    assert shown(panel("stat"), [answer(one(math.nan, device="a"), step=0)]) == NO_DATA


def test_a_kind_of_panel_that_is_not_known_says_so():
    assert shown(panel("heatmap"), [answer(one(1))]) == Nothing("A panel of type heatmap is not drawn here")


MAPPED = [
    {
        "type": "value",
        "options": {"0": {"text": "down", "color": "red"}, "1": {"text": "up", "color": "green"}},
    }
]


def test_a_stat_has_the_last_value_its_colour_or_what_it_is_mapped_to():
    high = steps((None, "green"), (1, "orange"), (5, "red"))
    drawn = shown(
        panel("stat", unit="s", thresholds=high), [answer(one(9, 2, device="a"), one(7, device="b"))]
    )
    assert isinstance(drawn, Tiles)
    assert drawn.tiles == [("a", "2 s", "orange"), ("b", "7 s", "red")]
    assert appearance(0, levels({}), MAPPED, "none") == ("down", "red")
    assert appearance(2, levels({}), MAPPED, "none") == ("2", "green")


def test_states_that_go_on_are_one_span_and_a_hole_is_none():
    lane = Series({"device": "a"}, [(0, 1.0), (10, 1.0), (20, 0.0), (50, 1.0), (60, 1.0)])
    drawn = shown(panel("state-timeline", mappings=MAPPED), [answer(lane)])
    assert isinstance(drawn, Lanes)
    assert drawn.lanes[0].name == "a"
    assert drawn.lanes[0].spans == [(0, 20, "up", "green"), (20, 30, "down", "red"), (50, 70, "up", "green")]


def test_a_table_joins_its_answers_and_shows_what_is_missing():
    table = next(each for each in dashboard_json.panels(model("fleet")) if each["type"] == "table")
    refs = [target["refId"] for target in table["targets"]]
    answers = [answer(ref=ref, step=0) for ref in refs]
    answers[0] = answer(one(1, device="a", job="x"), one(0, device="b"), ref=refs[0], step=0)
    answers[1] = answer(one(3, device="b"), ref=refs[1], step=0)
    drawn = shown(table, answers)
    assert isinstance(drawn, Grid)
    assert drawn.heads[0] == "Device"
    assert len(drawn.heads) == len(refs) + 1
    assert [row[0].text for row in drawn.rows] == ["a", "b"]
    assert drawn.rows[0][2] == Cell("")
    assert drawn.rows[1][2].text == "3"


def test_a_table_without_a_join_has_a_row_for_each_series():
    drawn = shown(panel("table"), [answer(one(1, device="a"), one(2, device="b"), step=0)])
    assert drawn == Grid(["device", "Value"], [[Cell("a"), Cell("1")], [Cell("b"), Cell("2")]])


def test_a_table_is_sorted_as_its_panel_says():
    sort = {"options": {"sortBy": [{"displayName": "Value", "desc": True}]}}
    drawn = shown({**panel("table"), **sort}, [answer(one(1, d="a"), one(3, d="b"), one(2, d="c"), step=0)])
    assert isinstance(drawn, Grid)
    assert [row[0].text for row in drawn.rows] == ["b", "c", "a"]


def test_marks_stand_where_an_alert_begins_and_begins_again():
    streaming = model("streaming")
    found = []
    for question in queries(streaming, HALF_HOUR, {}, 1.0):
        start, step = question.window.start, question.step_s
        firing = [(start + n * step, 1.0) for n in (3, 4, 5, 40, 41)]
        fired = [Series({"alertname": "CodecDrift"}, firing)] if question.place == "Pages" else []
        found.append(QueryResult(question, fired))
    drawn = sheet(streaming, HALF_HOUR, found)
    (name, colour, marks), *others = drawn.marks
    assert (name, colour, [marks for _, _, marks in others]) == ("Pages", "red", [[], []])
    begun = [(mark.t - found[-3].question.window.start) / found[-3].question.step_s for mark in marks]
    assert (begun, {mark.text for mark in marks}) == ([3, 40], {"CodecDrift"})
    assert [frame.title for frame in drawn.frames] == [
        each["title"] for each in dashboard_json.panels(streaming)
    ]
    assert {frame.shown for frame in drawn.frames} == {NO_DATA}


def test_every_form_of_answer_is_read():
    matrix = {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[1, "2.5"], [2, "NaN"]]}]}
    assert series(matrix)[0].labels == {"a": "b"}
    assert series(matrix)[0].points[0] == (1, 2.5)
    assert series({"resultType": "vector", "result": [{"metric": {}, "value": [1, "+Inf"]}]}) == [
        Series({}, [(1, math.inf)])
    ]
    assert series({"resultType": "scalar", "result": [5, "1"]}) == [Series({}, [(5, 1)])]
