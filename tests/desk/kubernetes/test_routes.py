"""The AlertmanagerConfig as the operator would turn it into Alertmanager's own form: the device's routes, for its namespace alone."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from helpers import inhibition
from helpers.clusters import EVERY_SETTINGS, in_base, unrolled
from omniwatch.bundle import render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes import files, routes
from omniwatch.settings import Settings

each_settings = pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
RECEIVERS = {"page": "page", "ticket": "ticket", "none": "watchdog", "state": "default"}
PATH = PurePosixPath("base/alertmanagerconfig.yaml")


def amtool(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["amtool", *arguments], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.programs
@each_settings
def test_every_rendered_alert_passes_the_matcher_to_one_receiver(tmp_path: Path, settings: Settings) -> None:
    unrolled(tmp_path, settings)
    config = f"--config.file={routes.CONFIG}"
    assert amtool(tmp_path, "check-config", str(routes.CONFIG)).returncode == 0
    rules = inhibition.rules(tmp_path)
    assert {"CodecDrift", "Watchdog", "SidecarBlind"} <= {rule["alert"] for rule in rules}
    for rule in rules:
        labels = {"alertname": rule["alert"], "device": "edge-1", **rule["labels"]}
        ways = {RECEIVERS[labels["severity"]]: labels, "nobody": {**labels, "namespace": "other"}}
        for receiver, told in ways.items():
            words = [f"{name}={text}" for name, text in told.items()]
            done = amtool(
                tmp_path, "config", "routes", "test", config, f"--verify.receivers={receiver}", *words
            )
            assert done.returncode == 0, (rule["alert"], done.stdout + done.stderr)


@each_settings
def test_routes_receivers_and_silences_are_the_devices(settings: Settings) -> None:
    device = load_yaml(render.render(files.of_a_cluster(settings))[routes.CONFIG])
    back = routes.as_alertmanager(in_base(settings)[PATH])
    own = f'namespace="{settings.kubernetes.namespace}"'
    (route,) = back["route"]["routes"]
    assert (route.pop("matchers"), route.pop("continue")) == ([own], True)
    assert route == device["route"]
    assert back["receivers"][1:] == [_as_operated(device, one) for one in device["receivers"]]
    for here, there in zip(back["inhibit_rules"], device["inhibit_rules"], strict=True):
        for side in ("source_matchers", "target_matchers"):
            assert here.pop(side) == [*there.pop(side), own]
        assert here == there


def _as_operated(device: dict[str, Any], receiver: dict[str, Any]) -> dict[str, Any]:
    """A device's receiver with what `global` says of mail, and secrets where the operator has them."""
    found = {name: receiver[name] for name in receiver}
    mail = {key.removeprefix("smtp_"): text for key, text in device.get("global", {}).items()}
    for kind in ("email_configs", "slack_configs", "pagerduty_configs"):
        if kind in found:
            found[kind] = [
                {
                    key: f"/omniwatch-receivers/{Path(text).name}" if key.endswith("_file") else text
                    for key, text in {**one, **(mail if kind == "email_configs" else {})}.items()
                }
                for one in found[kind]
            ]
    return found


def test_a_page_waits_for_nothing() -> None:
    page = in_base(Settings())[PATH]["spec"]["route"]["routes"][0]
    assert page["matchers"] == [{"name": "severity", "matchType": "=", "value": "page"}]
    assert page["groupWait"] == "0s"
    assert page["groupBy"] == ["site", "device", "fault", "test"]
