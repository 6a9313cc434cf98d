"""The device's rules: their unit tests pass under several settings, and fail for rules that are written wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from helpers.bundles import COARSE, FINE, TIGHT, failing, promtool, rendered, replaced, unit_tests
from omniwatch.settings import Settings
from omniwatch.settings.alerts import DeviceAlerts

RULES = "alerts/device.rules.yaml"
ODD = DeviceAlerts(
    throttled_ticket_share=0.07,
    throttled_ticket_window_s=131,
    throttled_periods_min=250,
    quota_for_s=7,
    hardware_for_s=1,
    overcurrents=4,
    overcurrents_window_s=61,
    memory_share=0.123,
    memory_for_s=31,
)
AT_ONCE = DeviceAlerts(
    throttled_periods_min=1,
    quota_for_s=0,
    hardware_for_s=0,
    memory_for_s=0,
)
EVERY_SETTINGS = {
    "defaults": Settings(),
    "odd": msgspec.structs.replace(FINE, device=ODD),
    "at once": msgspec.structs.replace(COARSE, device=AT_ONCE),
    "tight": TIGHT,
}


@pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
def test_promtool_finds_nothing_and_every_unit_test_passes(tmp_path: Path, settings: Settings) -> None:
    rendered(tmp_path, settings)
    for done in (
        promtool("check", "rules", "--lint=all", "--lint-fatal", RULES, cwd=tmp_path),
        unit_tests(tmp_path, "device"),
    ):
        assert done.returncode == 0, done.stdout + done.stderr


def test_throttling_is_a_ticket_over_1_percent(tmp_path: Path) -> None:
    (group,) = yaml.safe_load((rendered(tmp_path) / RULES).read_text())["groups"]
    rules = {rule.get("alert") or rule["record"]: rule for rule in group["rules"]}
    assert "> 0.01\n" in rules["omniwatch:cpu_throttled:ratio"]["expr"]
    assert rules["CPUThrottling"]["expr"] == "max_over_time(omniwatch:cpu_throttled:ratio[10m])"
    assert rules["CPUThrottling"]["labels"] == {"severity": "ticket"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> 0.01\n", ">= 0.01\n"),
        ("> 0.01\n", "> 0.02\n"),
        ("ratio[10m]", "ratio[9m]"),
        ("ratio[10m]", "ratio[11m]"),
        (">= 100\n", "> 100\n"),
        ("round(increase(omni_server_cpu_thr", "(delta(omni_server_cpu_thr"),
        ("- 1) < 0.02", "- 1) < 0.05"),
        ("unless abs(", "unless ("),
        ("unless abs(", "unless -("),
        ("jetson_throttle_alert > 0", "jetson_throttle_alert >= 0"),
        ('"cause", "heat"', '"cause", "hot"'),
        ('{oc=~"oc1|oc2"}', ""),
        ('{oc=~"oc1|oc2"}', '{oc="oc1"}'),
        ("< 0.05\n", "<= 0.05\n"),
        ("for: 1m", "for: 55s"),
        ("for: 1h", "for: 3595s"),
        ("for: 1h", "for: 3605s"),
        ('{state="inactive"}', '{state="active"}'),
        ("for: 15s", "for: 20s"),
        ("humanizePercentage", "humanize"),
        ("/MemoryNearlyGone.md", "/SidecarBlind.md"),
    ],
)
def test_the_unit_tests_notice_a_rule_that_is_written_wrong(tmp_path: Path, old: str, new: str) -> None:
    replaced(rendered(tmp_path) / RULES, old, new)
    assert any(done.returncode == 1 for done in failing(tmp_path, "device"))
