"""Each lint rule fails on a dashboard that breaks it, and on no other; the shipped dashboards have no lint."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from helpers.lints import dashboards
from omniwatch.bundle import render
from omniwatch.bundle.dashboard_json import panels
from omniwatch.settings import Settings

STREAMING = json.loads(render.render(Settings())[PurePosixPath("dashboards/streaming.json")])
SCOPE = 'job=~"$job",device=~"$device"'
Break = Callable[[dict], object]


def variable(model: dict, name: str) -> dict:
    return next(entry for entry in model["templating"]["list"] if entry["name"] == name)


def first(model: dict) -> dict:
    return next(panel for panel in panels(model) if panel["id"] == 1)


def asking(expression: str) -> Break:
    return lambda model: first(model)["targets"][0].update(expr=expression)


def without(name: str) -> Break:
    return lambda model: model["templating"]["list"].remove(variable(model, name))


BROKEN: list[tuple[str, Break]] = [
    ("template-datasource", without("datasource")),
    ("template-datasource", lambda model: variable(model, "datasource").update(query="loki")),
    ("template-job", lambda model: variable(model, "job").update(allValue=".*")),
    ("template-job", lambda model: variable(model, "job").update(multi=False)),
    ("template-instance", lambda model: variable(model, "device").update(includeAll=False)),
    ("template-instance", lambda model: variable(model, "device").update(label="")),
    ("template-label-promql", lambda model: variable(model, "stream").update(query="label_names()")),
    ("template-label-promql", lambda model: variable(model, "stream").update(query="label_values(x{, a)")),
    ("template-on-time-change-reload", lambda model: variable(model, "stream").update(refresh=1)),
    ("panel-datasource", lambda model: first(model).update(datasource={"uid": "abc"})),
    ("panel-datasource", lambda model: first(model)["targets"][0].update(datasource=None)),
    ("panel-title-description", lambda model: first(model).update(title="")),
    ("panel-title-description", lambda model: first(model).update(description=" ")),
    ("panel-units", lambda model: first(model)["fieldConfig"]["defaults"].update(unit="msec")),
    ("panel-no-targets", lambda model: first(model).update(targets=[])),
    ("target-promql", asking("rate(up")),
    ("target-promql", asking("1 + 1")),
    ("target-rate-interval", asking(f"rate(a_total{{{SCOPE}}}[5m])")),
    ("target-rate-interval", asking(f"sum by (x) (increase(a_total{{{SCOPE}}}[$__interval]))")),
    ("target-job", asking('up{device=~"$device"}')),
    ("target-job", asking(f'up{{{SCOPE}}} + on (x) up{{job="$job",device=~"$device"}}')),
    ("target-instance", asking('up{job=~"$job"}')),
    ("target-instance", asking('ALERTS{alertstate="firing"}')),
    ("target-counter-agg", asking(f"a_total{{{SCOPE}}}")),
    ("target-counter-agg", asking(f"max_over_time(a_total{{{SCOPE}}}[$__rate_interval])")),
    ("uneditable-dashboard", lambda model: model.update(editable=True)),
    ("identity", lambda model: model.update(uid="")),
    ("identity", lambda model: first(model).update(id=2)),
    ("identity", lambda model: first(model).update(id=1000)),
]


@pytest.mark.parametrize(("rule", "damage"), BROKEN, ids=[f"{n}-{b[0]}" for n, b in enumerate(BROKEN)])
def test_a_rule_fails_on_what_breaks_it_and_no_other_does(rule, damage):
    model = copy.deepcopy(STREAMING)
    damage(model)
    assert {line.partition(":")[0] for line in dashboards.lint(model)} == {rule}


def test_a_dashboard_without_a_job_or_device_variable_is_found():
    for names, rules in (
        (("job", "server_job"), {"template-job", "target-job"}),
        (("device",), {"template-instance", "target-instance"}),
    ):
        model = copy.deepcopy(STREAMING)
        for name in names:
            without(name)(model)
        assert {line.partition(":")[0] for line in dashboards.lint(model)} == rules


def test_every_rule_is_proven():
    assert {rule for rule, _ in BROKEN} == set(dashboards.RULES)


def test_panels_of_a_collapsed_row_are_looked_at():
    model = copy.deepcopy(STREAMING)
    row, hidden = model["panels"][0], model["panels"].pop(1)
    row.update(collapsed=True, panels=[hidden])
    assert dashboards.lint(model) == []
    hidden["title"] = ""
    assert dashboards.lint(model) == ["panel-title-description: panel 16: no title"]


def test_only_a_single_value_may_look_back_five_minutes_whatever_is_shown():
    model = copy.deepcopy(STREAMING)
    asking(f"rate(a_total{{{SCOPE}}}[5m])")(model)
    assert [line.partition(":")[0] for line in dashboards.lint(model)] == ["target-rate-interval"]
    first(model)["type"] = "stat"
    assert dashboards.lint(model) == []
