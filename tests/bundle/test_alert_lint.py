"""Every alert has its unit tests and its runbook page, and every page its alert; what the pages name exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from helpers import lints
from helpers.bundles import COARSE, FINE, LINKED, changed_settings, data_folders, promtool, rendered, replaced
from omniwatch.bundle import dashboard_json, data, render
from omniwatch.cli import main
from omniwatch.metrics import collector
from omniwatch.settings import Settings

PAGES = sorted((data.root() / "runbooks").glob("*.md"))
QUERY = re.compile(r"promtool query instant http://127\.0\.0\.1:9090 '([^']+)'")

SILENCE = (
    "amtool --alertmanager.url=http://127.0.0.1:9093 silence add --duration=15m --comment=restart "
    """device=orin 'fault=~"speech|server"'"""
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return rendered(tmp_path_factory.mktemp("bundle"))


def loaded(bundle: Path, pattern: str) -> list:
    return [yaml.safe_load(path.read_text()) for path in sorted(bundle.glob(f"alerts/{pattern}"))]


def rules(bundle: Path) -> list[dict]:
    return [
        rule for file in loaded(bundle, "*.rules.yaml") for group in file["groups"] for rule in group["rules"]
    ]


def alerts(bundle: Path) -> list[str]:
    return sorted({rule["alert"] for rule in rules(bundle) if "alert" in rule})


def commands(page: Path) -> str:
    """Return the shell commands of a page."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def unknown_series(text: str) -> set[str]:
    """Return the series named in a text that the sidecar does not have; what host readers bring is not looked at."""
    known = {family.name + ("_total" if family.kind == "counter" else "") for family in collector.FAMILIES}
    known |= {
        f"{family.name}_{part}" for family in collector.HISTOGRAMS for part in ("bucket", "count", "sum")
    }
    named = set(re.findall(r"\bomni_(?!server_|device_)[a-z0-9_]*[a-z0-9]\b", text))
    return named - known


@pytest.mark.slow
@pytest.mark.parametrize("settings", [LINKED, FINE, COARSE], ids=["defaults", "fine", "coarse"])
def test_what_is_shipped_has_no_lint(tmp_path, settings):
    assert lints.of_bundle(rendered(tmp_path, settings)) == []


def test_tests_at_another_interval_than_the_rules_are_found(tmp_path):
    path = rendered(tmp_path) / "alerts/streaming.test.yaml"
    replaced(path, "evaluation_interval: 5s", "evaluation_interval: 1m")
    assert lints.of_bundle(tmp_path) == [
        'interval: streaming.test.yaml: group omni_streaming every "5s", tests every "1m"'
    ]


def test_alerts_and_pages_are_the_same_names(bundle):
    assert alerts(bundle) == [page.stem for page in PAGES]


def test_every_alert_fires_in_one_unit_test_and_is_silent_in_another(bundle):
    cases = [
        case
        for file in loaded(bundle, "*.test.yaml")
        for test in file["tests"]
        for case in test.get("alert_rule_test", [])
    ]
    heartbeats = {
        rule["alert"]
        for rule in rules(bundle)
        if rule.get("labels") == {"severity": "none", "device": "orin"}
    }
    assert heartbeats == {"Watchdog"}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(alerts(bundle))
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == set(alerts(bundle)) - heartbeats


def test_every_alert_leads_to_its_page_and_to_a_panel_that_leads_back(bundle):
    models = {path.stem: json.loads(path.read_text()) for path in bundle.glob("dashboards/*.json")}
    for rule in (rule for rule in rules(bundle) if "alert" in rule):
        found = re.search(r"/d/omni-([a-z-]+)\?.*&viewPanel=(\d+)$", rule["annotations"]["dashboard_url"])
        panels = {panel["id"]: panel for panel in dashboard_json.panels(models[found[1]])}
        page = rule["annotations"]["runbook_url"]
        assert page in [link["url"] for link in panels[int(found[2])]["links"]]
        assert (data.root() / "runbooks" / page.rpartition("/")[2]).is_file()


@pytest.mark.slow
def test_a_shipped_alert_that_no_panel_shows_any_more_is_found(tmp_path):
    root = data_folders(tmp_path / "data")
    replaced(root / "dashboards/streaming.yaml.j2", "alerts: [StreamSilent", "runbooks: [StreamSilent")
    assert (
        "alert: StreamSilent: no annotation dashboard_url: no panel of a dashboard has it among its `alerts`"
        in lints.of_bundle(rendered(tmp_path / "out", root=root), root)
    )


def test_an_alert_has_one_panel(tmp_path):
    root = data_folders(tmp_path / "data")
    replaced(root / "dashboards/streaming.yaml.j2", "alerts: [StreamSilent", "alerts: [CodecDrift")
    message = r"^dashboards/streaming.yaml.j2: panel 11: CodecDrift has its panel: 1 of omni-streaming$"
    with pytest.raises(render.RenderError, match=message):
        rendered(tmp_path / "out", root=root)


def test_every_alert_says_in_chinese_what_it_is(bundle):
    said = {rule["alert"]: rule["annotations"]["summary_zh"] for rule in rules(bundle) if "alert" in rule}
    assert len(set(said.values())) == len(said)
    for text in said.values():
        assert re.fullmatch(r"[^a-z]*[\u4e00-\u9fff].*。", text)


WEIRD = """
rule_files: [streaming.rules.yaml]
evaluation_interval: 5s
tests:
  - interval: 5s
    input_series: [{series: 'omni_codec_drift_ms{device="a b&c",stream="0"}', values: "99x2000"}]
    alert_rule_test: [{eval_time: 2000s, alertname: CodecDrift, exp_alerts: [{exp_labels: {}}]}]
"""


@pytest.mark.programs
def test_a_dashboards_address_has_the_device_the_stream_and_half_an_hour_before(tmp_path):
    rendered(tmp_path, changed_settings("grafana", url="https://grafana.example/sub/"))
    (tmp_path / "alerts/weird.test.yaml").write_text(WEIRD)
    said = promtool("test", "rules", "alerts/weird.test.yaml", cwd=tmp_path)
    address = urlsplit(re.search(r'dashboard_url\W+(https[^"\\]+)', said.stdout + said.stderr)[1])
    assert address[:3] == ("https", "grafana.example", "/sub/d/omni-streaming")
    assert parse_qs(address.query, strict_parsing=True) == {
        "from": ["200000"],
        "to": ["2600000"],
        "var-device": ["a b&c"],
        "var-stream": ["0"],
        "viewPanel": ["1"],
    }


def test_every_rules_file_has_its_unit_tests_beside_it():
    names = [path.name for path in (data.root() / "alerts").glob("*.j2")]
    rules = {name.removesuffix(".rules.yaml.j2") for name in names if name.endswith(".rules.yaml.j2")}
    tests = {name.removesuffix(".test.yaml.j2") for name in names if name.endswith(".test.yaml.j2")}
    assert rules == tests != set()


@each_page
def test_a_page_has_its_title_and_its_sections_in_order(page):
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert tuple(re.findall(r"^## (.+)$", text, flags=re.MULTILINE)) == lints.alerts.SECTIONS


@each_page
def test_a_page_that_leads_to_a_restart_says_first_how_to_silence(page):
    before, restart, _ = page.read_text().partition(f"systemctl restart {Settings().server.unit}")
    assert SILENCE in before or not restart


def test_most_pages_lead_to_a_restart():
    assert sum(SILENCE in page.read_text() for page in PAGES) > 10


@each_page
@pytest.mark.programs
def test_the_commands_of_a_page_are_well_formed(page, tmp_path):
    script = commands(page)
    assert script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    queries = QUERY.findall(script)
    assert len(queries) == script.count("promtool query")
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", "queries.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@each_page
def test_what_a_page_names_exists(page):
    text = page.read_text()
    assert unknown_series(text) == set()
    groups = "|".join(Settings.__struct_fields__)
    for group, name in re.findall(rf"`({groups})\.(\w+)`", text):
        assert hasattr(getattr(Settings(), group), name), name
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (page.parent / target).is_file(), target
    named = set(re.findall(r"^omniwatch ([a-z-]+)", commands(page), flags=re.MULTILINE))
    assert named <= set(main.list_commands(None))


def test_the_series_that_rules_ask_for_exist(bundle):
    for rule in rules(bundle):
        assert unknown_series(" ".join([rule["expr"], *rule.get("annotations", {}).values()])) == set()
    assert unknown_series("omni_token_rtt_ms + omni_token_rtt_sec") == {"omni_token_rtt_sec"}
