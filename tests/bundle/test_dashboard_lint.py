"""Each lint rule fails on a dashboard that breaks it, and on no other; links and queries are followed to their end."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import get_args

import pytest
from grafana_foundation_sdk.models import units

from helpers.bundles import promtool, rendered
from omniwatch.bundle import check, dashboard_lint, render
from omniwatch.bundle.check import Status
from omniwatch.bundle.promql import PromqlError, selectors
from omniwatch.settings import Settings

STREAMING = json.loads(render.render(Settings())[PurePosixPath("dashboards/streaming.json")])
SCOPE = 'job=~"$job",device=~"$device"'
Break = Callable[[dict], object]


def variable(model: dict, name: str) -> dict:
    return next(entry for entry in model["templating"]["list"] if entry["name"] == name)


def first(model: dict) -> dict:
    return next(panel for panel in dashboard_lint.panels(model) if panel["id"] == 1)


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
    assert {line.partition(":")[0] for line in dashboard_lint.lint(model)} == {rule}


def test_a_dashboard_without_a_job_or_device_variable_is_found():
    for names, rules in (
        (("job", "server_job"), {"template-job", "target-job"}),
        (("device",), {"template-instance", "target-instance"}),
    ):
        model = copy.deepcopy(STREAMING)
        for name in names:
            without(name)(model)
        assert {line.partition(":")[0] for line in dashboard_lint.lint(model)} == rules


def test_every_rule_is_proven():
    assert {rule for rule, _ in BROKEN} == set(dashboard_lint.RULES)


def test_the_units_are_grafanas():
    grafanas = {value for kind in units.__annotations__.values() for value in get_args(kind)}
    assert grafanas >= dashboard_lint.UNITS


def test_panels_of_a_collapsed_row_are_looked_at():
    model = copy.deepcopy(STREAMING)
    row, hidden = model["panels"][0], model["panels"].pop(1)
    row.update(collapsed=True, panels=[hidden])
    assert dashboard_lint.lint(model) == []
    hidden["title"] = ""
    assert dashboard_lint.lint(model) == ["panel-title-description: panel 16: no title"]


def test_only_a_single_value_may_look_back_five_minutes_whatever_is_shown():
    model = copy.deepcopy(STREAMING)
    asking(f"rate(a_total{{{SCOPE}}}[5m])")(model)
    assert [line.partition(":")[0] for line in dashboard_lint.lint(model)] == ["target-rate-interval"]
    first(model)["type"] = "stat"
    assert dashboard_lint.lint(model) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up", [("up", {}, "", "")]),
        ('rate(a_total{b="c{d}",e!~"f"}[5m])', [("a_total", {"b": '="c{d}"', "e": '!~"f"'}, "5m", "rate")]),
        ("sum by (a, b) (x) / on (a) group_left (c) y", [("x", {}, "", ""), ("y", {}, "", "")]),
        ("sum(x) without (a) > bool 1e3", [("x", {}, "", "")]),
        ('{__name__="x"}', [("", {"__name__": '="x"'}, "", "")]),
        ("max_over_time(rate(x[1m])[5m:10s])", [("x", {}, "1m", "rate")]),
        (
            "a:b{} offset 5m and c unless ignoring(d) e",
            [("a:b", {}, "", ""), ("c", {}, "", ""), ("e", {}, "", "")],
        ),
        ("x[$__rate_interval]", [("x", {}, "$__rate_interval", "")]),
        (
            'rate(a{b="$b"}[${__range}]) / rate(c[90s]) # of $d',
            [("a", {"b": '="$b"'}, "${__range}", "rate"), ("c", {}, "1m30s", "rate")],
        ),
        ("a or (b and c)", [("a", {}, "", ""), ("b", {}, "", ""), ("c", {}, "", "")]),
        (r'x{a=~"b\\.c"}', [("x", {"a": r'=~"b\.c"'}, "", "")]),
        ("histogram_quantile(0.5, x) < Inf", [("x", {}, "", "histogram_quantile")]),
    ],
)
def test_selectors(query, expected):
    assert [tuple(selector) for selector in selectors(query)] == expected


@pytest.mark.parametrize(
    "query", ["rate(x", "x)", "x{a}]", "(x]", "x ! y", "sum(x}", "rate(x)", "1 $x 2", "x[$__range", "f(x)"]
)
def test_text_that_is_no_query(query):
    with pytest.raises(PromqlError):
        selectors(query)


def test_an_address_leads_to_a_dashboard_and_a_panel():
    models = {"omni-streaming": STREAMING}
    assert dashboard_lint.lost("https://g/d/omni-streaming/x?viewPanel=2&var-stream=0", models) == ""
    assert dashboard_lint.lost("https://g/d/omni-streaming?viewPanel=panel-2", models) == ""
    assert dashboard_lint.lost("/d/omni-streaming?viewPanel=99", models) == (
        "no panel 99 on dashboard omni-streaming"
    )
    assert dashboard_lint.lost("/d/omni-other", models) == "no dashboard omni-other"
    assert dashboard_lint.lost("https://g/explore", models) == "no dashboard https://g/explore"


def test_check_tells_lint_from_failure(tmp_path):
    bundle = rendered(tmp_path)
    path = bundle / "dashboards/streaming.json"
    fine = {str(result) for result in check.check(bundle, unit_tests=False) if "dashboard" in str(result)}
    model = copy.deepcopy(STREAMING)
    first(model)["title"] = ""
    path.write_text(json.dumps(model))
    assert new(bundle, fine) == {
        (
            Status.LINT,
            "LINT: dashboard: dashboards/streaming.json: panel-title-description: panel 1: no title",
        )
    }
    first(model).update(title="x", links=[{"url": "https://g/runbooks/Nothing.md"}])
    path.write_text(json.dumps(model))
    assert new(bundle, fine) == {
        (
            Status.FAILED,
            "FAILED: dashboard: dashboards/streaming.json: panel 1: no runbook page Nothing.md",
        )
    }
    path.write_text("{")
    lines = {line for _, line in new(bundle, fine)}
    assert any(line.startswith("FAILED: JSON: dashboards/streaming.json: ") for line in lines)
    assert "FAILED: dashboard: dashboards/fleet.json: panel 1: no dashboard omni-streaming" in lines, (
        "the table's devices lead there"
    )


def new(bundle, fine: set[str]) -> set[tuple[Status, str]]:
    return {
        (result.status, str(result))
        for result in check.check(bundle, unit_tests=False)
        if ("dashboard" in str(result)) and str(result) not in fine
    }


def test_a_query_that_promtool_cannot_read_is_a_failure(tmp_path):
    bundle = rendered(tmp_path)
    model = copy.deepcopy(STREAMING)
    first(model)["targets"][0]["expr"] = f"nonsense(up{{{SCOPE}}})"
    (bundle / "dashboards/streaming.json").write_text(json.dumps(model))
    result = next(r for r in check.check(bundle, unit_tests=False) if r.subject == "dashboards/*.json")
    assert result.status is Status.FAILED
    assert "omni:streaming_panel_1_A" in result.detail


def test_the_rules_that_promtool_is_given_are_every_query(tmp_path):
    rules = dashboard_lint.as_rules({"omni-streaming": STREAMING})
    assert len(rules["groups"][0]["rules"]) == len(list(dashboard_lint.queries(STREAMING)))
    (tmp_path / "q.yaml").write_text(json.dumps(rules))
    done = promtool("check", "rules", "--lint=none", "q.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
