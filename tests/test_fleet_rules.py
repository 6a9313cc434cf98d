"""What goes up to the centre, and the centre's rules: held against each other, against the device's alerts, and nudged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bundles import COARSE, FINE, changed_settings, promtool, rendered
from inhibition import FLEET
from omniwatch.fleet_settings import Fleet
from omniwatch.settings import Settings
from omniwatch.uplink import FAMILIES, PREFIX

OTHER = msgspec.structs.replace(
    FINE,
    fleet=Fleet(
        remote_write_url="https://centre.example/api/v1/write",
        site='a "site"'.replace('"', "'"),
        interval_s=30,
        flush_s=60,
        evaluation_s=60,
        rule_delay_s=0,
        silent_after_s=240,
        clock_skew_s=7.5,
        clock_skew_for_s=0,
        backlog_bytes=17,
        backlog_for_s=61,
        breach_share=0.33,
        breach_min=2,
        release_devices_min=2,
        baseline="old",
    ),
)
NAMED = Fleet(baseline="1")
EVERY_SETTINGS = {
    "defaults": Settings(),
    "other": OTHER,
    "coarse": msgspec.structs.replace(COARSE, fleet=NAMED),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return rendered(tmp_path_factory.mktemp("bundle"))


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in loaded(path)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
def test_promtool_finds_nothing_and_every_unit_test_passes(tmp_path, settings):
    rendered(tmp_path, settings)
    for arguments in (
        (
            "check",
            "rules",
            "--lint=all",
            "--lint-fatal",
            "alerts/fleet.rules.yaml",
            "alerts/uplink.rules.yaml",
        ),
        ("test", "rules", "alerts/fleet.test.yaml"),
        ("test", "rules", "alerts/uplink.test.yaml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "deploy/fleet/centre-pages.rules.yaml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "deploy/fleet/paging.rules.yaml"),
        ("check", "config", "deploy/prometheus/prometheus.yml"),
        ("check", "config", "deploy/fleet/centre-prometheus.yml"),
        ("check", "config", "--agent", "deploy/fleet/uplink-prometheus.yml"),
    ):
        done = promtool(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


NUDGES = {
    "DeviceSilent": ("> 300", "> 330"),
    "DeviceClockSkew": ("time() > 30", "time() > 32"),
    "UplinkBacklog": ("> 1000000", "> 1000002"),
    "FleetInBreach": ("> 0.1", "> 0.11"),
    "ReleaseRegression": ("2 * model:", "3.1 * model:"),
    "SiteErrorBudget": ("> 0.72", "> 0.73"),
}


@pytest.mark.parametrize("alert", NUDGES)
def test_the_unit_tests_notice_a_limit_that_is_a_step_off(tmp_path, alert):
    path = rendered(tmp_path) / "alerts/fleet.rules.yaml"
    content = loaded(path)
    old, new = NUDGES[alert]
    for rule in content["groups"][0]["rules"]:
        if rule.get("alert") == alert:
            assert old in rule["expr"]
            rule["expr"] = rule["expr"].replace(old, new)
    path.write_text(yaml.safe_dump(content))
    tests = loaded(tmp_path / "alerts/fleet.test.yaml")
    tests["tests"] = [
        test for test in tests["tests"] if alert in {case["alertname"] for case in test["alert_rule_test"]}
    ]
    (tmp_path / "alerts/fleet.test.yaml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", "alerts/fleet.test.yaml", cwd=tmp_path)
    assert set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr)) == {alert}


FORGOTTEN = """
rule_files: [fleet.rules.yaml]
evaluation_interval: 60s
tests:
  - interval: 60s
    input_series: [{series: 'uplink:time_seconds{device="a",site="home"}', values: "0 60 120"}]
    promql_expr_test:
      - {expr: "device:last_seen:timestamp_seconds", eval_time: 69m, exp_samples: [
          {labels: 'device:last_seen:timestamp_seconds{device="a",site="home"}', value: 120}]}
      - {expr: "device:last_seen:timestamp_seconds", eval_time: 72m, exp_samples: []}
"""


def test_a_device_that_was_taken_away_is_forgotten(tmp_path):
    settings = changed_settings("fleet", silent_within_s=4200, evaluation_s=60)
    (rendered(tmp_path, settings) / "alerts/forgotten.test.yaml").write_text(FORGOTTEN)
    done = promtool("test", "rules", "alerts/forgotten.test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_families_are_the_uplinks_rules_and_all_that_passes_the_allow_list(bundle):
    # uplink:alert_firing is recorded by two rules: of what this device tells people, and of what it cannot tell them.
    records = {rule["record"] for rule in rules(bundle / "alerts/uplink.rules.yaml")}
    assert sorted(records) == sorted(family.name for family in FAMILIES)
    allowed = [
        loaded(bundle / "deploy/fleet/uplink-relabel.yml")[0]["regex"],
        loaded(bundle / "deploy/fleet/uplink-prometheus.yml")["remote_write"][0]["write_relabel_configs"][0][
            "regex"
        ],
    ]
    for name in ("uplink.yml", "uplink-prometheus.yml"):
        (job,) = loaded(bundle / "deploy/fleet" / name)["scrape_configs"]
        (match,) = job["params"]["match[]"]
        allowed.append(re.fullmatch(r'\{__name__=~"(.+)"\}', match)[1])
    assert set(allowed) == {f"{PREFIX}.+"}
    others = [rule for path in bundle.glob("alerts/*.rules.yaml") for rule in rules(path)]
    named = {rule["record"] for rule in others if rule.get("record", "").startswith(PREFIX)}
    assert named == records


def test_a_device_reads_every_rules_file_but_the_centres(bundle):
    read = loaded(bundle / "deploy/prometheus/prometheus.yml")["rule_files"]
    there = {f"../../alerts/{path.name}" for path in bundle.glob("alerts/*.rules.yaml")}
    assert set(read) == there - {"../../alerts/fleet.rules.yaml"}
    centre = loaded(bundle / "deploy/fleet/centre-prometheus.yml")["rule_files"]
    assert centre == ["../../alerts/fleet.rules.yaml", "centre-pages.rules.yaml"]


def test_every_page_of_a_device_is_raised_again_at_the_centre(bundle):
    own = [rule for path in bundle.glob("alerts/*.rules.yaml") for rule in rules(path) if "alert" in rule]
    pages = {rule["alert"] for rule in own if rule["labels"]["severity"] == "page"} - FLEET
    memory, *again = rules(bundle / "deploy/fleet/centre-pages.rules.yaml")
    assert memory["record"] == "device:remembered:timestamp_seconds"
    assert {rule["alert"] for rule in again} == pages
    assert all("labels" not in rule for rule in again)
    for rule in again:
        assert f'alertname="{rule["alert"]}",severity="page"' in rule["expr"]
        # As far into the future as device:last_seen, which it is held against; promtool has no future to try it in.
        assert "[1d] offset -10m)" in rule["expr"]


def test_what_a_device_tells_people_itself_the_centre_does_not_raise(bundle):
    labels = [
        one.get("labels", {})
        for one in rules(bundle / "alerts/uplink.rules.yaml")
        if one["record"] == "uplink:alert_firing"
    ]
    assert labels == [{}, {"paged": "device"}], "the first what is left to the centre"
    pages = [rule for rule in rules(bundle / "deploy/fleet/centre-pages.rules.yaml") if "alert" in rule]
    assert pages
    assert all('paged=""' in rule["expr"] for rule in pages)


def test_mimirs_files_are_the_same_groups_with_a_namespace(bundle):
    for name, other in (
        ("fleet", "alerts/fleet.rules.yaml"),
        ("pages", "deploy/fleet/centre-pages.rules.yaml"),
    ):
        found = loaded(bundle / f"deploy/fleet/centre-mimir-{name}.yaml")
        assert found.pop("namespace") == f"omniwatch-{name}"
        assert found == loaded(bundle / other)


def test_a_silent_device_silences_its_tickets_at_the_centre_alone(bundle):
    def silencing(path: str) -> list[dict[str, Any]]:
        every = loaded(bundle / path)["inhibit_rules"]
        return [rule for rule in every if "DeviceSilent" in rule["source_matchers"][0]]

    assert silencing("deploy/alertmanager/alertmanager.yml") == []
    (rule,) = silencing("deploy/fleet/centre-alertmanager.yml")
    assert rule["target_matchers"] == ['severity="ticket"'], "its pages may be new, or go on"
    assert rule["equal"] == ["site", "device"]


def test_a_device_alone_has_no_trace_of_a_fleet_in_its_prometheus(bundle):
    text = (bundle / "deploy/prometheus/prometheus.yml").read_text()
    assert "external_labels" not in text
    assert "job_name: uplink" not in text
    assert "paging.rules" not in text
    assert "PageTaken" not in (bundle / "deploy/alertmanager/alertmanager.yml").read_text()


def test_a_device_of_a_fleet_says_who_it_is_in_every_alert(tmp_path):
    config = loaded(rendered(tmp_path, OTHER) / "deploy/prometheus/prometheus.yml")
    assert config["global"]["external_labels"] == {"site": "a 'site'", "model": "qwen3-omni", "release": "1"}
    told = [one["static_configs"][0]["targets"] for one in config["alerting"]["alertmanagers"]]
    assert told == [["127.0.0.1:9093"]]
