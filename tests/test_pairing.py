"""Every alert has its unit tests and its runbook page, and every page its alert; what the pages name exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from bundles import promtool, rendered
from omniwatch import metrics
from omniwatch.bundle import check, data
from omniwatch.cli import main
from omniwatch.settings import Settings

PAGES = sorted((data.root() / "runbooks").glob("*.md"))
QUERY = re.compile(r"promtool query instant http://127\.0\.0\.1:9090 '([^']+)'")

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
    known = {family.name + ("_total" if family.kind == "counter" else "") for family in metrics.FAMILIES}
    known |= {f"{family.name}_{part}" for family in metrics.HISTOGRAMS for part in ("bucket", "count", "sum")}
    named = set(re.findall(r"\bomni_(?!server_|device_)[a-z0-9_]*[a-z0-9]\b", text))
    return named - known


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


def test_every_rules_file_has_its_unit_tests_beside_it():
    names = [path.name for path in (data.root() / "alerts").glob("*.j2")]
    rules = {name.removesuffix(".rules.yaml.j2") for name in names if name.endswith(".rules.yaml.j2")}
    tests = {name.removesuffix(".test.yaml.j2") for name in names if name.endswith(".test.yaml.j2")}
    assert rules == tests != set()


@each_page
def test_a_page_has_its_title_and_its_sections_in_order(page):
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert tuple(re.findall(r"^## (.+)$", text, flags=re.MULTILINE)) == check.SECTIONS


@each_page
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
