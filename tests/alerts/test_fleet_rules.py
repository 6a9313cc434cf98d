"""What goes up to the centre, and the centre's rules: held against each other, against the device's alerts, and nudged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.bundles import COARSE, FINE, changed_settings, hold, promtool, rendered, sample, unit_tests
from helpers.needs import NEGATIVE_OFFSET
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.centre.uplink_metrics import FAMILIES, PREFIX
from omniwatch.settings import Settings, SettingsError, parse
from omniwatch.settings.fleet import Fleet

pytestmark = pytest.mark.needs(NEGATIVE_OFFSET)

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
        site_silent_min=2,
        site_silent_share=0.25,
        off_max_s=7200,
        release_devices_min=2,
        baseline="old",
    ),
)
NAMED = Fleet(baseline='it\'s "1"')
OTHER_SETTINGS = {
    "other": OTHER,
    "coarse": msgspec.structs.replace(COARSE, fleet=NAMED),
}
"""tests/bundle/test_check.py runs the unit tests of what is shipped, the defaults."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return rendered(tmp_path_factory.mktemp("bundle"))


def loaded(path: Path) -> Any:
    return load_yaml(path.read_text())


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in loaded(path)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("settings", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
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
        ("test", "rules", "alerts/uplink.test.yaml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "deploy/fleet/centre-held.rules.yaml"),
        ("check", "config", "deploy/prometheus/prometheus.yml"),
        ("check", "config", "deploy/fleet/centre-prometheus.yml"),
        ("check", "config", "--agent", "deploy/fleet/uplink-prometheus.yml"),
    ):
        done = promtool(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    done = unit_tests(tmp_path, "fleet")
    assert done.returncode == 0, done.stdout + done.stderr


NUDGES = {
    "DeviceSilent": ("> 300", "> 330"),
    "DeviceClockSkew": ("time() > 30", "time() > 32"),
    "UplinkBacklog": ("> 1000000", "> 1000002"),
    "SiteSilent": (">= 3", ">= 4"),
    "DeviceOff": ("> 259200", "> 259230"),
    "ReleaseRegression": ("2 * model:", "3.1 * model:"),
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
    path.write_text(json.dumps(content))
    done = unit_tests(tmp_path, "fleet", {alert})
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
    records = [rule["record"] for rule in rules(bundle / "alerts/uplink.rules.yaml")]
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
    assert named == set(records)


def test_a_device_reads_every_rules_file_but_the_centres(bundle):
    read = loaded(bundle / "deploy/prometheus/prometheus.yml")["rule_files"]
    there = {f"../../alerts/{path.name}" for path in bundle.glob("alerts/*.rules.yaml")}
    assert set(read) == there - {"../../alerts/fleet.rules.yaml"}
    centre = loaded(bundle / "deploy/fleet/centre-prometheus.yml")["rule_files"]
    assert centre == ["../../alerts/fleet.rules.yaml", "centre-held.rules.yaml"]


def test_mimirs_files_are_the_same_groups_with_a_namespace(bundle):
    for name, other in (
        ("fleet", "alerts/fleet.rules.yaml"),
        ("held", "deploy/fleet/centre-held.rules.yaml"),
    ):
        found = loaded(bundle / f"deploy/fleet/centre-mimir-{name}.yaml")
        assert found.pop("namespace") == f"omniwatch-{name}"
        assert found == loaded(bundle / other)


def test_what_is_held_is_silenced_at_the_centre_alone(bundle):
    def silencing(path: str, source: str) -> list[dict[str, Any]]:
        every = loaded(bundle / path)["inhibit_rules"]
        return [rule for rule in every if source in rule["source_matchers"][0]]

    assert silencing("deploy/alertmanager/alertmanager.yml", "AlertHeld") == []
    pages, tickets = silencing("deploy/fleet/centre-alertmanager.yml", "AlertHeld")
    assert pages["source_matchers"] == ['alertname="AlertHeld"', 'held="page"']
    assert pages["target_matchers"] == ['severity="page"', 'fault=~".+"']
    assert pages["equal"] == tickets["equal"] == ["site", "device", "fault"]


WHO = 'site="n",device="{device}",model="omni",release="1"'


def test_what_fired_when_a_device_was_heard_last_is_held_by_its_kind_of_fault(tmp_path):
    rendered(tmp_path)
    series = {}
    for device, until in (("gone", 10), ("heard", 40)):
        who, values = WHO.format(device=device), f"0+30x{until}"
        series[f"uplink:time_seconds{{{who}}}"] = values
        for alert, severity, of in (
            ("CodecDrift", "page", values),
            ("TokenRTT", "page", values),
            ("SidecarImpaired", "ticket", values),
            ("SidecarBlind", "page", "0+30x4"),
        ):
            series[f'uplink:alert_firing{{{who},alertname="{alert}",severity="{severity}"}}'] = of
    held = 'count by (device, held, fault) (ALERTS{alertname="AlertHeld",alertstate="firing"})'
    gone = [
        ('{device="gone",held="page",fault="speech"}', 1),
        ('{device="gone",held="ticket",fault="sight"}', 1),
    ]
    hold(
        tmp_path,
        ["alerts/fleet.rules.yaml", "deploy/fleet/centre-held.rules.yaml"],
        30,
        series,
        promql_expr_test=[sample(held, "6m30s"), sample(held, "8m", *gone), sample(held, "20m", *gone)],
    )


def test_what_is_held_stays_held_while_the_centre_stalls(tmp_path):
    rendered(tmp_path)
    who = WHO.format(device="gone")
    firing = f'uplink:alert_firing{{{who},alertname="CodecDrift",severity="page"}}'
    series = {firing: "0x1 _x60", f"device:last_seen:timestamp_seconds{{{who}}}": "0x8 _x5 0x20"}
    held = 'count(ALERTS{alertname="AlertHeld",alertstate="firing"})'
    hold(
        tmp_path,
        ["deploy/fleet/centre-held.rules.yaml"],
        30,
        series,
        promql_expr_test=[sample(held, at, ("{}", 1)) for at in ("4m", "6m", "6m30s", "7m", "8m")],
    )


def test_a_device_alone_has_no_trace_of_a_fleet_in_its_prometheus(bundle):
    text = (bundle / "deploy/prometheus/prometheus.yml").read_text()
    assert "external_labels" not in text
    assert "job_name: uplink" not in text


def test_a_device_of_a_fleet_sends_its_alerts_to_the_fleets_alertmanagers(tmp_path):
    fleet = Fleet(
        alertmanager_urls=["https://a.example/am/", "http://b:9093"],
        alertmanager_username="orin",
        alertmanager_password_file="/etc/omniwatch/password",
        client_cert_file="/etc/omniwatch/device.pem",
        client_key_file="/etc/omniwatch/device.key",
        token_file="/etc/omniwatch/token",
    )
    path = rendered(tmp_path, Settings(fleet=fleet)) / "deploy/prometheus/prometheus.yml"
    first, second = loaded(path)["alerting"]["alertmanagers"]
    assert (first["scheme"], first["path_prefix"]) == ("https", "/am")
    assert [one["static_configs"][0]["targets"] for one in (first, second)] == [["a.example"], ["b:9093"]]
    assert first["basic_auth"] == {"username": "orin", "password_file": "/etc/omniwatch/password"}
    assert "authorization" not in first
    assert first["tls_config"] == {
        "cert_file": "/etc/omniwatch/device.pem",
        "key_file": "/etc/omniwatch/device.key",
    }
    assert loaded(path)["global"]["external_labels"]["site"] == "default"
    jobs = {job["job_name"] for job in loaded(path)["scrape_configs"]}
    assert jobs == {"omniwatch", "model_server", "prometheus"}, "neither an uplink nor an Alertmanager here"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("alertmanager_urls: ['https://me:secret@c/']", "expected text: http:// or https:// address"),
        ("alertmanager_username: me", "fleet.alertmanager_username: goes with alertmanager_password_file"),
        ("client_cert_file: /c", "fleet.client_cert_file: goes with client_key_file"),
    ],
)
def test_what_prometheus_could_not_use_is_refused_in_one_line(setting, message):
    with pytest.raises(SettingsError) as refused:
        parse(f"fleet: {{{setting}}}")
    assert message in str(refused.value)


def test_a_device_of_a_fleet_says_who_it_is_in_every_alert(tmp_path):
    config = loaded(rendered(tmp_path, OTHER) / "deploy/prometheus/prometheus.yml")
    assert config["global"]["external_labels"] == {"site": "a 'site'", "model": "qwen3-omni", "release": "1"}
    told = [one["static_configs"][0]["targets"] for one in config["alerting"]["alertmanagers"]]
    assert told == [["127.0.0.1:9093"]]
