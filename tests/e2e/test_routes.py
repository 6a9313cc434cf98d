"""Which alert silences which, on a running Alertmanager; and the way from there through the bridge to a robot."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundles import rendered
from inhibition import SILENCES, STREAM_PAIRS
from omniwatch.notify.bridge import Bridge
from omniwatch.receivers import Notify, Robot
from omniwatch.settings import parse
from omniwatch.stack import Service, free_port, get, program
from robots import SECRET, StandIn
from waiting import wait_until

CONFIG = "deploy/alertmanager/alertmanager.yml"


class Alertmanager:
    """A real one with the rendered configuration."""

    def __init__(self, directory: Path, settings: str = "{}") -> None:
        self.bundle = rendered(directory / "bundle", parse(settings))
        address = f"127.0.0.1:{free_port()}"
        flags = [
            f"--config.file={self.bundle / CONFIG}",
            f"--storage.path={directory / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
        command = [program("prometheus-alertmanager", "alertmanager"), *flags]
        self._service = Service("alertmanager", command, directory, f"http://{address}")
        self._service.await_ready("/-/ready")

    def post(self, alerts: list[dict[str, Any]]) -> None:
        request = urllib.request.Request(
            f"{self._service.url}/api/v2/alerts",
            json.dumps(alerts).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def alerts(self) -> list[dict[str, Any]]:
        return json.loads(get(f"{self._service.url}/api/v2/alerts"))

    def stop(self) -> None:
        self._service.stop()


NO_WEBHOOKS = "receivers: {page_webhook_url: '', ticket_webhook_url: ''}"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    running = Alertmanager(tmp_path, NO_WEBHOOKS)
    yield running
    running.stop()


def severities(bundle: Path) -> dict[str, str]:
    files = [yaml.safe_load(path.read_text()) for path in bundle.glob("alerts/*.rules.yaml")]
    rules = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}


def fired(name: str, severity: str, **labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "severity": severity, "instance": "orin:9842", **labels},
        "annotations": {"summary": "Test.", "description": f"{name} fires."},
        "startsAt": datetime.now(timezone.utc).isoformat(),
    }


def test_each_alert_silences_what_it_explains_on_its_own_device_and_nothing_else(alertmanager):
    """Every ordered pair of alerts has two devices of its own: one stream for both, and two streams."""
    severity = severities(alertmanager.bundle)
    pairs = [(one, other) for one in SILENCES for other in severity if one != other]
    expected, posted = {}, []
    for number, (one, other) in enumerate(pairs):
        for stream in ("0", "1"):
            device = f"{number}-{stream}"
            posted.append(fired(one, severity[one], device=device, stream="0"))
            posted.append(fired(other, severity[other], device=device, stream=stream))
            for silencer, target in ((one, other), (other, one)):
                same = stream == "0" or (silencer, target) not in STREAM_PAIRS
                expected[device, target] = target in SILENCES.get(silencer, set()) and same
    alertmanager.post(posted)
    wait_until(lambda: len(alertmanager.alerts()) == len(posted), 60)
    found = {
        (alert["labels"]["device"], alert["labels"]["alertname"]): alert["status"]["state"] == "suppressed"
        for alert in alertmanager.alerts()
    }
    wrong = {key: was for key, was in found.items() if was != expected[key]}
    assert {
        (pairs[int(device.split("-")[0])], target, was) for (device, target), was in wrong.items()
    } == set()
    assert any(expected.values())
    assert len(found) == len(expected)


def test_a_text_for_slack_has_the_links_and_both_languages(tmp_path):
    slack = StandIn("slack")
    (tmp_path / "slack").write_text(slack.url)
    page = f"{{page_webhook_url: '', ticket_webhook_url: '', page: {{slack_api_url_file: {tmp_path}/slack}}}}"
    alertmanager = Alertmanager(tmp_path, f"receivers: {page}")
    try:
        alert = fired("CodecDrift", "page", device="orin", stream="0")
        alert["annotations"] |= {
            "summary_zh": "声音与画面不同步。",
            "dashboard_url": "https://grafana.example/d/omni-streaming?from=1&to=2&viewPanel=1",
            "runbook_url": "https://wiki.example/CodecDrift.md",
        }
        alertmanager.post([alert])
        (told,) = wait_until(lambda: slack.taken)
    finally:
        alertmanager.stop()
        slack.close()
    (attachment,) = told["attachments"]
    assert attachment["title"] == "[FIRING] CodecDrift on orin"
    assert attachment["title_link"] == "https://wiki.example/CodecDrift.md"
    assert attachment["text"].strip() == (
        "firing: CodecDrift fires. 声音与画面不同步。 "
        "<https://grafana.example/d/omni-streaming?from=1&to=2&viewPanel=1|Dashboard>"
    )


def test_a_page_and_its_end_reach_a_robot_through_the_bridge(tmp_path):
    robot = StandIn("dingtalk")
    (tmp_path / "url").write_text(robot.url)
    (tmp_path / "secret").write_text(SECRET)
    told = Robot(
        kind="dingtalk", url_file=str(tmp_path / "url"), secret_file=str(tmp_path / "secret"), language="en"
    )
    bridge = Bridge(Notify(listen_address="127.0.0.1:0", robots=[told]))
    threading.Thread(target=bridge.serve, daemon=True).start()
    hooks = f"receivers: {{page_webhook_url: 'http://{bridge.address}/page', ticket_webhook_url: ''}}"
    alertmanager = Alertmanager(tmp_path, hooks)
    try:
        page = fired("CodecDrift", "page", device="orin", stream="0")
        alertmanager.post([page, fired("DriftAhead", "ticket", device="orin", stream="0")])
        wait_until(lambda: robot.taken)
        alertmanager.post([page | {"endsAt": datetime.now(timezone.utc).isoformat()}])
        wait_until(lambda: len(robot.taken) == 2)
    finally:
        alertmanager.stop()
        bridge.stop()
        robot.close()
    titles = [body["markdown"]["title"] for body in robot.taken]
    assert titles == ["[FIRING] CodecDrift on orin", "[RESOLVED] CodecDrift on orin"]
    assert "lasted " in robot.taken[1]["markdown"]["text"]
