"""The rules: what is promised of them, their unit tests under several settings, and that those tests can fail."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client.utils import floatToGoString

from helpers.bundles import COARSE, FINE, TIGHT, changed_settings, promtool, rendered, replaced
from omniwatch.core.totals import Totals
from omniwatch.settings import Alerts, Settings

RULES = "alerts/streaming.rules.yaml"
TESTS = "alerts/streaming.test.yaml"
UPLINK = "alerts/uplink.rules.yaml"
PROMETHEUS = "deploy/prometheus/prometheus.yml"
ALERTMANAGER = "deploy/alertmanager/alertmanager.yml"
EVERY_SETTINGS = {"defaults": Settings(), "fine": FINE, "coarse": COARSE, "tight": TIGHT}

each_settings = pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)


def group_of(directory) -> dict[str, Any]:
    (group,) = yaml.safe_load((directory / RULES).read_text())["groups"]
    return group


def test_the_defaults_are_the_contract_to_the_character(tmp_path):
    group = group_of(rendered(tmp_path))
    assert (group["name"], group["interval"]) == ("omni_streaming", "5s")
    assert [rule["alert"] for rule in group["rules"]] == ["CodecDrift", "TokenRTT"]
    drift, rtt = group["rules"]
    assert (drift["expr"], drift["for"]) == ("abs(omni_codec_drift_ms) > 60", "15s")
    assert (rtt["expr"], rtt["for"]) == ("omni_token_rtt_ms > 800", "20s")
    assert drift["labels"] == rtt["labels"] == {"severity": "page"}
    text = (tmp_path / RULES).read_text()
    for line in (
        "expr: abs(omni_codec_drift_ms) > 60",
        "for: 15s",
        "expr: omni_token_rtt_ms > 800",
        "for: 20s",
    ):
        assert f"        {line}\n" in text


@each_settings
def test_promtool_finds_nothing_and_every_unit_test_passes(tmp_path, settings):
    rendered(tmp_path, settings)
    for arguments in (
        ("check", "rules", "--lint=all", "--lint-fatal", RULES),
        ("test", "rules", TESTS),
        ("check", "config", PROMETHEUS),
    ):
        done = promtool(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


@each_settings
def test_rules_prometheus_and_unit_tests_share_one_interval(tmp_path, settings):
    interval = group_of(rendered(tmp_path, settings))["interval"]
    assert yaml.safe_load((tmp_path / TESTS).read_text())["evaluation_interval"] == interval
    assert yaml.safe_load((tmp_path / PROMETHEUS).read_text())["global"]["evaluation_interval"] == interval


@pytest.mark.parametrize("drift_page_ms", [60, 60.0, 62.5, 58.1, 1000, 4000, 0.1])
def test_the_uplink_asks_for_an_edge_that_the_sidecar_has(tmp_path, drift_page_ms):
    directory = rendered(tmp_path, changed_settings("alerts", drift_page_ms=drift_page_ms))
    (group,) = yaml.safe_load((directory / UPLINK).read_text())["groups"]
    (expr,) = [rule["expr"] for rule in group["rules"] if rule["record"] == "uplink:turns_in_sync_total"]
    edges = Totals.empty(drift_page_ms).drift_edges
    (edge,) = [edge for edge in edges if f'le="{floatToGoString(edge)}"' in expr]
    assert edge == drift_page_ms / 1000


@each_settings
def test_without_network_pages_the_contract_stays_and_tickets_stand_beside_it(tmp_path, settings):
    pages = group_of(rendered(tmp_path / "pages", settings))["rules"]
    alerts = msgspec.structs.replace(settings.alerts, network_pages=False)
    tickets = rendered(tmp_path / "tickets", msgspec.structs.replace(settings, alerts=alerts))
    rules = group_of(tickets)["rules"]
    assert rules[:2] == pages
    for page, ticket in zip(pages, rules[2:], strict=True):
        assert ticket["labels"] == {"severity": "ticket"}
        assert ticket["expr"].startswith(f"{page['expr']} and on (device) ALERTS")
        assert (ticket["alert"], ticket.get("for")) == (page["alert"], page.get("for"))
    for subject in ("streaming", "network"):
        checked = promtool(
            "check", "rules", "--lint=all", "--lint-fatal", f"alerts/{subject}.rules.yaml", cwd=tickets
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        done = promtool("test", "rules", f"alerts/{subject}.test.yaml", cwd=tickets)
        assert done.returncode == 0, done.stdout + done.stderr


STEPS = {
    "drift_page_ms": lambda alerts: 0.02,
    "drift_for_s": lambda alerts: alerts.evaluation_interval_s,
    "rtt_page_ms": lambda alerts: 0.02,
    "rtt_for_s": lambda alerts: alerts.evaluation_interval_s,
}
"""How little each setting may be off before a unit test must notice."""


def off_by_one_step() -> list[Any]:
    cases = []
    for name, settings in EVERY_SETTINGS.items():
        for field, step in STEPS.items():
            value = getattr(settings.alerts, field)
            for sign in (1, -1):
                other = value + sign * step(settings.alerts)
                try:
                    alerts = msgspec.convert(
                        {**msgspec.structs.asdict(settings.alerts), field: other}, Alerts
                    )
                except msgspec.ValidationError:
                    continue
                wrong = msgspec.structs.replace(settings, alerts=alerts)
                cases.append(pytest.param(settings, wrong, id=f"{name}-{field}-{other:g}"))
    return cases


@pytest.mark.parametrize(("settings", "wrong"), off_by_one_step())
def test_the_unit_tests_notice_a_setting_that_is_a_step_off(tmp_path, settings, wrong):
    rendered(tmp_path, settings)
    (tmp_path / RULES).write_text((rendered(tmp_path / "wrong", wrong) / RULES).read_text())
    done = promtool("test", "rules", TESTS, cwd=tmp_path)
    assert done.returncode == 1
    assert "FAILED" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("abs(omni_codec_drift_ms)", "omni_codec_drift_ms"),
        ("abs(omni_codec_drift_ms)", "-omni_codec_drift_ms"),
        ("abs(omni_codec_drift_ms)", "max(abs(omni_codec_drift_ms))"),
        ("> 60\n", ">= 60\n"),
        ("> 800\n", ">= 800\n"),
        ("expr: omni_token_rtt_ms", "expr: abs(omni_token_rtt_ms)"),
        ("expr: omni_token_rtt_ms", "expr: max_over_time(omni_token_rtt_ms[30s])"),
        ("stream=%q} > 0", "stream=%q} < 0"),
        ("severity: page", "severity: ticket"),
        ('printf "%.0f" $value', 'printf "%.1f" $value'),
        ("/CodecDrift.md", "/TokenRTT.md"),
    ],
)
def test_the_unit_tests_notice_a_rule_that_is_written_wrong(tmp_path, old, new):
    replaced(rendered(tmp_path) / RULES, old, new)
    assert promtool("check", "rules", RULES, cwd=tmp_path).returncode == 0
    done = promtool("test", "rules", TESTS, cwd=tmp_path)
    assert done.returncode == 1
    assert "FAILED" in done.stdout + done.stderr


def routed_to(directory, *labels: str) -> list[str]:
    command = ["amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_every_page_reaches_the_page_receiver_and_nothing_else_does(tmp_path):
    rendered(tmp_path)
    assert routed_to(tmp_path, "severity=page") == ["page"]
    assert routed_to(tmp_path, "severity=ticket") == ["ticket"]
    assert routed_to(tmp_path, "severity=none") == ["watchdog"]
    assert routed_to(tmp_path, "alertname=Other") == ["default"]


def test_a_page_leaves_at_once_and_its_end_with_the_group(tmp_path):
    rendered(tmp_path, changed_settings("receivers", page_webhook_url="https://pager.example/hook"))
    config = yaml.safe_load((tmp_path / ALERTMANAGER).read_text())
    route = config["route"]["routes"][0]
    assert (route["group_wait"], route["group_interval"]) == ("0s", "5m")
    assert route["group_by"] == ["site", "device", "fault", "test"]
    assert config["route"]["group_by"] == ["alertname", "site", "device", "test"]
    (page,) = [receiver for receiver in config["receivers"] if receiver["name"] == route["receiver"]]
    assert page["webhook_configs"] == [{"url": "https://pager.example/hook", "send_resolved": True}]


def test_prometheus_finds_the_rules_the_sidecar_and_alertmanager(tmp_path):
    config = yaml.safe_load((rendered(tmp_path) / PROMETHEUS).read_text())
    assert config["global"]["scrape_interval"] == "1s"
    assert [job["job_name"] for job in config["scrape_configs"]] == [
        "omniwatch",
        "model_server",
        "prometheus",
        "alertmanager",
    ]
    devices = [job["static_configs"][0]["labels"] for job in config["scrape_configs"]]
    assert devices == [{"device": "orin"}] * 4
    found = {((tmp_path / PROMETHEUS).parent / name).resolve() for name in config["rule_files"]}
    there = {path.resolve() for path in (tmp_path / RULES).parent.glob("*.rules.yaml")}
    assert {path.name for path in there - found} == {"fleet.rules.yaml"}, "those are the centre's"
    assert found < there


def test_a_model_server_without_metrics_is_not_scraped(tmp_path):
    config = yaml.safe_load(
        (rendered(tmp_path, changed_settings("site", model_server="")) / PROMETHEUS).read_text()
    )
    assert [job["job_name"] for job in config["scrape_configs"]] == [
        "omniwatch",
        "prometheus",
        "alertmanager",
    ]
