"""Dashboards: YAML in, Grafana's JSON out; thresholds follow the settings, ids stay, Grafana's own model reads it."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import pytest
import yaml

from helpers.bundles import FINE, LINKED, data_folders, replaced
from helpers.dashboard_models import NAMES, model
from helpers.lints.dashboards import lint
from omniwatch.bundle import dashboard_json, dashboards, data, render
from omniwatch.core.totals import OUTCOMES
from omniwatch.settings import Settings

MINIMAL = """
uid: a
title: A
description: What it shows.
runbook_base_url: https://example.org/runbooks
variables: {}
annotations: {}
rows:
  - title: Row
    panels:
      - {id: 1, title: One, description: Of it., unit: s, queries: {'{{x}}': up}}
"""

each_dashboard = pytest.mark.parametrize("name", NAMES)


def panel(found: dict, number: int) -> dict:
    return next(panel for panel in dashboard_json.panels(found) if panel["id"] == number)


def panels_of(found: dict, row: int) -> list[dict]:
    """Return the panels of the n-th row."""
    heads = [n for n, item in enumerate(found["panels"]) if item["type"] == "row"] + [len(found["panels"])]
    return found["panels"][heads[row] + 1 : heads[row + 1]]


def test_the_dashboards_are_these():
    assert NAMES == ["device", "fleet", "model-server", "resumption", "streaming"]


@each_dashboard
def test_a_dashboard_has_no_lint(name):
    assert lint(model(name)) == []
    assert lint(model(name, FINE)) == []


@each_dashboard
def test_panels_do_not_overlap_and_fill_the_grid(name):
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in model(name)["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("name", ["fleet", "model-server", "streaming"])
def test_what_is_now_comes_first_and_in_one_line(name):
    now = panels_of(model(name), 0)
    assert sum(item["gridPos"]["w"] for item in now) == 24
    assert {item["gridPos"]["y"] for item in now} == {1}
    assert {item["type"] for item in now} == {"stat"}


def test_the_two_curves_come_first_below_it_with_the_rules_thresholds():
    streaming = model("streaming", FINE)
    drift, rtt = panels_of(streaming, 1)
    assert (drift["id"], rtt["id"]) == (1, 2)
    assert drift["targets"][0]["expr"].startswith("omni_codec_drift_ms{")
    assert rtt["targets"][0]["expr"].startswith("omni_token_rtt_ms{")
    assert drift["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"value": None, "color": "red"},
        {"value": -62.5, "color": "green"},
        {"value": 62.5, "color": "red"},
    ]
    assert rtt["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"value": None, "color": "green"},
        {"value": 750.0, "color": "orange"},
        {"value": 1234.5, "color": "red"},
    ]
    assert "omni_turns_bad_total" in panel(streaming, 6)["targets"][0]["expr"]
    assert panel(streaming, 6)["interval"] == "121s"


@each_dashboard
def test_no_setting_moves_an_id(name):
    assert [p["id"] for p in model(name)["panels"]] == [p["id"] for p in model(name, FINE)["panels"]]


@each_dashboard
def test_runbooks_that_are_linked_exist_at_the_sites_address(name):
    panels = dashboard_json.panels(model(name, LINKED))
    for link in (link for item in panels for link in item["links"]):
        base, _, page = link["url"].rpartition("/")
        assert base == LINKED.site.runbook_base_url.rstrip("/")
        assert (data.root() / "runbooks" / page).is_file()


@each_dashboard
def test_traps_of_the_model_servers_metrics_are_avoided(name):
    for _, query in dashboard_json.queries(model(name)):
        assert "model_name" not in query
        assert "vllm_omni:transfer_" not in query
        assert "audio_continuity_ok" not in query


def test_rates_of_the_model_server_are_made_from_the_interval_of_its_job():
    text = render.render(Settings())[PurePosixPath("deploy/prometheus/prometheus.yml")]
    every = {job["job_name"]: job.get("scrape_interval") for job in yaml.safe_load(text)["scrape_configs"]}
    found = {
        target.get("interval")
        for panel in model("model-server")["panels"]
        for target in panel.get("targets", [])
    }
    assert found == {every["model_server"], "75s"}, "its own, or a quarter of five minutes"


@each_dashboard
def test_a_legend_has_the_last_value_and_the_worst(name):
    for item in dashboard_json.panels(model(name)):
        if item["type"] == "timeseries":
            last, worst = item["options"]["legend"]["calcs"]
            assert (last, worst in ("max", "min")) == ("lastNotNull", True)


def test_colours_by_meaning_are_overrides_that_find_the_series():
    ended = panel(model("streaming"), 8)
    colours = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in ended["fieldConfig"]["overrides"]
    }
    assert {"/completed/": "green", "/no_audio/": "red"}.items() <= colours.items()
    assert {key.strip("/") for key in colours} == set(OUTCOMES)


def test_silent_devices_are_the_first_of_the_fleet():
    table = next(item for item in dashboard_json.panels(model("fleet")) if item["type"] == "table")
    assert table["options"]["sortBy"][0] == {"displayName": "Silent for", "desc": True}


def test_stable_bytes_for_a_small_one():
    text = dashboards.expand(MINIMAL, "a.yaml.j2")
    assert text == dashboards.expand(MINIMAL, "a.yaml.j2")
    assert text.endswith("}\n")
    found = json.loads(text)
    assert found["panels"][1]["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"value": None, "color": "green"}
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit: s", "units: s", "unknown field `units`"),
        ("id: 1,", "", "missing required field `id`"),
        ("queries: {'{{x}}': up}", "queries: {}", "length >= 1"),
        ("uid: a", "uid: A B", "matching regex"),
        ("uid: a", "uid: [", "flow"),
        ("title: One", "type: pie, title: One", "Invalid enum value 'pie'"),
        ("title: One", "colours: {'(': red}, title: One", "colours: '(': missing )"),
        ("title: One", "sort: [Two], title: One", "no query is titled 'Two'"),
        ("title: One", "columns: {Two: {}}, title: One", "no query is titled 'Two'"),
        (
            "      - {id: 1",
            "      - {id: 1, title: T, description: D, unit: s, queries: {a: up}}\n      - {id: 1",
            "id 1 is there twice",
        ),
    ],
)
def test_a_template_that_does_not_hold_is_one_line(old, new, message):
    assert old in MINIMAL
    with pytest.raises(
        dashboards.DashboardError, match=rf"^a\.yaml\.j2: .*{re.escape(message)}.*$"
    ) as caught:
        dashboards.expand(MINIMAL.replace(old, new, 1), "a.yaml.j2")
    assert "\n" not in str(caught.value)


def test_render_says_which_template_does_not_hold(tmp_path):
    root = data_folders(tmp_path)
    replaced(root / "dashboards/fleet.yaml.j2", "uid: omni-fleet", "uid: Fleet")
    with pytest.raises(render.RenderError, match=r"^dashboards/fleet\.yaml\.j2: Expected `str` matching"):
        render.render(Settings(), root)
