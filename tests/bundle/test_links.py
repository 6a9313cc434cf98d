"""`omniwatch check DIR` after a change by hand: links of alerts and panels that lead nowhere, queries that do not parse."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path, PurePosixPath

import msgspec
import pytest
import yaml

from helpers.bundles import LINKED, promtool, rendered, replaced
from helpers.checks import RULES, found_wrong, no_tool
from omniwatch.bundle import check, dashboard_json, links, render
from omniwatch.settings import Settings

DASHBOARD = "dashboards/streaming.json"
STREAMING = json.loads(render.render(Settings())[PurePosixPath(DASHBOARD)])


def first(model: dict) -> dict:
    return next(panel for panel in dashboard_json.panels(model) if panel["id"] == 1)


def changed(bundle: Path, **fields: object) -> Path:
    """Change the first panel of a dashboard."""
    model = copy.deepcopy(STREAMING)
    first(model).update(fields)
    (bundle / DASHBOARD).write_text(json.dumps(model))
    return bundle


def test_an_address_leads_to_a_dashboard_and_a_panel():
    models = {"omni-streaming": STREAMING}
    assert links.lost("https://g/d/omni-streaming/x?viewPanel=2&var-stream=0", models) == ""
    assert links.lost("https://g/d/omni-streaming?viewPanel=panel-2", models) == ""
    assert links.lost("/d/omni-streaming?viewPanel=99", models) == "no panel 99 on dashboard omni-streaming"
    assert links.lost("/d/omni-other", models) == "no dashboard omni-other"
    assert links.lost("https://g/explore", models) == "no dashboard https://g/explore"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("viewPanel=1\"", "viewPanel=99\"", "dashboard_url: no panel 99 on dashboard omni-streaming"),
        ("/d/omni-streaming", "/d/omni-voices", "dashboard_url: no dashboard omni-voices"),
        ("run/CodecDrift.md", "run/Drift.md", "runbook_url: no runbook page Drift.md"),
    ],
)  # fmt: skip
def test_a_link_of_an_alert_that_leads_nowhere_fails(tmp_path, old, new, found):
    replaced(rendered(tmp_path) / RULES, old, new)
    results = check.check(tmp_path, no_tool)
    assert f"FAILED: alert: CodecDrift: {found}" in found_wrong(results)
    assert check.exit_code(results) == 1


def test_a_command_of_an_alert_that_shows_no_page_fails(tmp_path):
    replaced(
        rendered(tmp_path, Settings()) / RULES, "omniwatch runbook CodecDrift", "omniwatch runbook Drift"
    )
    results = check.check(tmp_path, no_tool)
    assert "FAILED: alert: CodecDrift: runbook: no runbook page Drift.md" in found_wrong(results)


def noted(settings: Settings) -> list[str]:
    results = check.check_files(render.render(settings), no_tool)
    assert check.exit_code(results) == 0
    return [result.detail for result in results if result.status is check.Status.NOTE]


def test_what_is_not_set_is_noted_and_is_no_failure():
    grafana, runbooks = noted(Settings())
    assert grafana.startswith("grafana.url is not set: messages link no dashboard")
    assert runbooks.startswith("site.runbook_base_url is not set: messages name `omniwatch runbook NAME`")
    assert noted(msgspec.structs.replace(LINKED, grafana=Settings().grafana)) == [grafana]
    assert noted(LINKED) == []


NOWHERE = re.compile(r"127\.0\.0\.1:3000|github\.com")


def test_by_default_nothing_but_a_centre_links_to_where_nothing_may_be():
    files = render.render(Settings())
    linked = {path.name for path, text in files.items() if NOWHERE.search(text)}
    assert linked == {"fleet.rules.yaml", "fleet.test.yaml", "centre-mimir-fleet.yaml"}
    assert not [
        path for path, text in files.items() if path.suffix == ".service" and "Documentation=" in text
    ]
    for link in (link for panel in dashboard_json.panels(STREAMING) for link in panel["links"]):
        assert link.get("type") == "dashboards"
    rules = [rule for name in ("streaming", "server", "fleet") for rule in of_file(files, name)]
    for rule in rules:
        said = rule["annotations"]
        if said.get("runbook"):
            assert said["runbook"] == f"omniwatch runbook {rule['alert']}"
            assert not {"runbook_url", "dashboard_url"} & said.keys()
    centre = [rule["alert"] for rule in rules if "runbook" not in rule["annotations"]]
    assert "SiteSilent" in centre
    assert "CodecDrift" not in centre


def of_file(files: render.Files, name: str) -> list[dict]:
    groups = yaml.safe_load(files[PurePosixPath(f"alerts/{name}.rules.yaml")])["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"links": [{"url": "https://g/runbooks/Nothing.md"}]}, ["panel 1: no runbook page Nothing.md"]),
        ({"links": [{"url": "/d/omni-other"}]}, ["panel 1: no dashboard omni-other"]),
        ({"links": [{"url": "https://wiki.example/page"}, {"type": "dashboards"}]}, []),
        ({"title": "", "description": "", "targets": []}, []),
    ],
)
def test_only_the_links_of_a_panel_are_judged(tmp_path, fields, found):
    bundle = changed(rendered(tmp_path), **fields)
    assert found_wrong(check.check(bundle, no_tool)) == [
        f"FAILED: dashboard: {DASHBOARD}: {one}" for one in found
    ]


def test_a_dashboard_that_is_not_json_fails_and_so_do_the_links_to_it(tmp_path):
    (rendered(tmp_path) / DASHBOARD).write_text("{")
    found = found_wrong(check.check(tmp_path, no_tool))
    assert any(line.startswith(f"FAILED: JSON: {DASHBOARD}: ") for line in found)
    assert "FAILED: dashboard: dashboards/fleet.json: panel 1: no dashboard omni-streaming" in found


@pytest.mark.programs
def test_a_query_that_promtool_cannot_read_is_a_failure(tmp_path):
    target = first(STREAMING)["targets"][0] | {"expr": "nonsense(up)"}
    bundle = changed(rendered(tmp_path), targets=[target])
    result = next(r for r in check.check(bundle, unit_tests=False) if r.subject == "dashboards/*.json")
    assert result.status is check.Status.FAILED
    assert "omni:streaming_panel_1_A" in result.detail


@pytest.mark.programs
def test_the_rules_that_promtool_is_given_are_every_query(tmp_path):
    rules = dashboard_json.as_rules({"omni-streaming": STREAMING})
    assert len(rules["groups"][0]["rules"]) == len(list(dashboard_json.queries(STREAMING)))
    (tmp_path / "q.yaml").write_text(json.dumps(rules))
    done = promtool("check", "rules", "--lint=none", "q.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
