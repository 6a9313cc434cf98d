"""The rules of a cluster: the device's text, the same unit tests, and two nodes of which one is at fault."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from helpers.bundles import hold, promtool
from helpers.clusters import EVERY_SETTINGS, in_base, unrolled
from omniwatch.bundle import render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes import rules
from omniwatch.settings import Settings

pytestmark = pytest.mark.programs
each_settings = pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
CORRECTED = {"SidecarBlind", "Watchdog", "ModelServerDown", "MonitoringFailing"}
"""Alerts that name the device themselves, or look for one that is missing: on a device there is one."""


def all_rules(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"]]


@each_settings
def test_each_rule_is_the_devices_to_the_character(settings: Settings) -> None:
    device, cluster = render.render(settings), in_base(settings)
    for subject in rules.subjects(device):
        there = load_yaml(device[PurePosixPath(f"alerts/{subject}.rules.yaml")])["groups"]
        here = cluster[PurePosixPath(f"base/rules/{subject}.yaml")]["spec"]["groups"]
        assert [(group["name"], group["interval"]) for group in here] == [
            (group["name"], group["interval"]) for group in there
        ]
        for mine, its in zip(all_rules(here), all_rules(there), strict=True):
            name = mine.get("alert", "")
            if name:
                assert mine["labels"].items() >= rules.added(settings, name).items()
                mine["labels"] = {key: text for key, text in mine["labels"].items() if key in its["labels"]}
            if name in CORRECTED:
                assert (mine.get("for"), mine["labels"]["severity"]) == (
                    its.get("for"),
                    its["labels"]["severity"],
                )
                assert mine["annotations"]["summary"] == its["annotations"]["summary"]
            else:
                assert mine == its


@each_settings
def test_promtool_finds_nothing(tmp_path: Path, settings: Settings) -> None:
    unrolled(tmp_path, settings)
    found = sorted(path.name for path in tmp_path.glob("alerts/*.rules.yaml"))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *found, cwd=tmp_path / "alerts")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("subject", ["streaming", "sidecar"])
def test_the_devices_unit_tests_pass(tmp_path: Path, subject: str) -> None:
    """Of the contract, and of the rules that differ most; `make test-compose` runs all."""
    done = promtool(
        "test", "rules", f"alerts/{subject}.test.yaml", cwd=unrolled(tmp_path, EVERY_SETTINGS["defaults"])
    )
    assert done.returncode == 0, done.stdout + done.stderr


def ours(settings: Settings, alert: str, **labels: str) -> dict[str, Any]:
    return {"exp_labels": {"severity": "page", **rules.added(settings, alert), **labels}}


def without_annotations(directory: Path) -> list[str]:
    """Take the annotations out of the rules, so that a case need not repeat them, and return the files."""
    found = []
    for path in sorted(directory.glob("alerts/*.rules.yaml")):
        whole = load_yaml(path.read_text())
        for rule in all_rules(whole["groups"]):
            rule.pop("annotations", None)
        render.write({PurePosixPath(path.relative_to(directory)): json.dumps(whole)}, directory)
        found.append(f"alerts/{path.name}")
    return found


def test_of_two_nodes_the_one_at_fault_is_paged_and_named(tmp_path: Path) -> None:
    settings = Settings()
    files = without_annotations(unrolled(tmp_path, settings))
    node = 'device="{0}",instance="{0}",job="omniwatch",namespace="omniwatch"'
    one, two = node.format("edge-1"), node.format("edge-2")
    told = ours(settings, "CodecDrift", device="edge-2", instance="edge-2", job="omniwatch", stream="0")
    series = {
        f"up{{{one}}}": "1+0x20",
        f"up{{{two}}}": "1+0x20",
        f'omni_codec_drift_ms{{{one},stream="0"}}': "10+0x20",
        f'omni_codec_drift_ms{{{two},stream="0"}}': "90+0x20",
        'up{device="cluster",job="prometheus"}': "1+0x20",
    }
    quiet = ["TokenRTT", "StreamSilent", "SidecarBlind", "ModelServerDown", "RedLineBurn", "TurnsOutOfSync"]
    cases = [{"eval_time": "20s", "alertname": "CodecDrift", "exp_alerts": [told]}]
    cases += [{"eval_time": "20s", "alertname": name, "exp_alerts": []} for name in quiet]
    hold(tmp_path, files, 5, series, alert_rule_test=cases)


def test_a_node_whose_sidecar_is_not_scraped_is_named_among_others(tmp_path: Path) -> None:
    settings = Settings()
    files = without_annotations(unrolled(tmp_path, settings))
    pod = 'kube_pod_info{{namespace="omniwatch",created_by_kind="DaemonSet",created_by_name="omniwatch",node="{0}",pod="p-{0}"}}'
    series = {
        'up{device="edge-1",instance="edge-1",job="omniwatch"}': "1+0x200",
        # Scraped for two minutes; then the pod is there and no longer scraped; then the node has left the cluster.
        'up{device="edge-2",instance="edge-2",job="omniwatch"}': "1+0x24 stale",
        pod.format("edge-1"): "1+0x200",
        pod.format("edge-2"): "1+0x120 stale",
    }
    told = [ours(settings, "SidecarBlind", device="edge-2", cause="absent")]
    cases = [
        {"eval_time": at, "alertname": "SidecarBlind", "exp_alerts": expected}
        for at, expected in (("400s", []), ("430s", told), ("595s", told), ("610s", []))
    ]
    hold(tmp_path, files, 5, series, alert_rule_test=cases)


def test_a_pod_that_has_just_begun_is_not_missed(tmp_path: Path) -> None:
    settings = Settings()
    files = without_annotations(unrolled(tmp_path, settings))
    pod = 'kube_pod_info{namespace="omniwatch",created_by_kind="DaemonSet",created_by_name="omniwatch",node="edge-1",pod="p"}'
    cases = [
        {"eval_time": at, "alertname": "SidecarBlind", "exp_alerts": expected}
        for at, expected in (
            ("295s", []),
            ("305s", [ours(settings, "SidecarBlind", device="edge-1", cause="absent")]),
        )
    ]
    hold(tmp_path, files, 5, {pod: "1+0x100"}, alert_rule_test=cases)
