"""Which alert silences which, on a running Alertmanager; and the way from there through the bridge to a robot."""

from __future__ import annotations

import html
import json
import re
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.bundles import HOSTILE, rendered
from helpers.fake_robots import SECRET, StandIn
from helpers.inhibition import CATALOGUE, EXPLAINING, causes, silenced
from helpers.waiting import wait_until
from omniwatch.bundle.alertmanager import of
from omniwatch.bundle.health import firing
from omniwatch.cli import main
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.desk.demo.local_stack import Pager
from omniwatch.notify.webhook_server import WebhookServer
from omniwatch.settings import parse
from omniwatch.settings.receivers import Notify, Robot

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
        self._service = ChildProcess("alertmanager", command, directory, f"http://{address}")
        self._service.await_ready("/-/ready")

    @property
    def url(self) -> str:
        return self._service.url

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


def fired(name: str, severity: str, **labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "severity": severity, "instance": "orin:9842", **labels},
        "annotations": {"summary": "Test.", "description": f"{name} fires."},
        "startsAt": datetime.now(timezone.utc).isoformat(),
    }


@pytest.mark.parametrize("sources", [1, 2])
def test_each_alert_silences_what_it_explains_on_its_own_device_and_nothing_else(tmp_path, sources):
    """Every alert that silences, of each cause, paired with every other, has a device of its own, and half of another one."""
    paths = [f"tail:/run/omniwatch/{number}.jsonl" for number in range(sources)]
    alertmanager = Alertmanager(tmp_path, f"{NO_WEBHOOKS}\nsources: {json.dumps(paths)}")
    causes_of = causes(alertmanager.bundle)
    pairs = [
        (one, cause, other)
        for one in sorted(EXPLAINING)
        for cause in causes_of[one]
        for other, entry in CATALOGUE.items()
        if other != one and entry.fault
    ]
    expected, posted = {}, []
    for number, (one, cause, other) in enumerate(pairs):
        for device, named in (
            (f"{number}-both", ((one, cause), (other, ""))),
            (f"{number}-alone", ((other, ""),)),
        ):
            for name, why in named:
                labels = {"device": device, "fault": CATALOGUE[name].fault} | ({"cause": why} if why else {})
                posted.append(fired(name, CATALOGUE[name].severity, **labels))
                expected[device, name] = any(
                    silenced(source, its, name, sources=sources) for source, its in named if source != name
                )
    try:
        alertmanager.post(posted)
        wait_until(lambda: len(alertmanager.alerts()) == len(posted), 60)
        found = {
            (alert["labels"]["device"], alert["labels"]["alertname"]): alert["status"]["state"]
            == "suppressed"
            for alert in alertmanager.alerts()
        }
    finally:
        alertmanager.stop()
    wrong = {key: was for key, was in found.items() if was != expected[key]}
    assert {
        (pairs[int(device.split("-")[0])], target, was) for (device, target), was in wrong.items()
    } == set()
    assert any(expected.values())
    assert len(found) == len(expected)


def test_one_fault_is_one_message_and_another_fault_is_another(tmp_path):
    """A person who was told of late answers hears of a dead server at once; what belongs to the first joins it later."""
    pager = Pager()
    hooks = f"{{page_webhook_url: '{pager.url}', ticket_webhook_url: '', group_interval_s: 3}}"
    alertmanager = Alertmanager(tmp_path, f"receivers: {hooks}")
    bus = {"device": "bus-017", "site": "north"}
    told: list[tuple[float, str, str]] = []

    def heard(count: int) -> list[tuple[str, str]]:
        while not pager.notices.empty():
            notice = pager.notices.get()
            told.append((notice.received_t, notice.status, notice.alert))
        return [one[1:] for one in told] if len(told) >= count else []

    try:
        late = fired("TokenRTT", "page", fault="speech", **bus)
        alertmanager.post([late])
        wait_until(lambda: heard(1))
        drift, dead = (
            fired("CodecDrift", "page", fault="speech", **bus),
            fired("ModelServerDown", "page", fault="server", **bus),
        )
        alertmanager.post([drift, dead])
        assert wait_until(lambda: heard(2))[1:] == [("firing", "ModelServerDown")], (
            "a group of its own leaves at once"
        )
        assert sorted(wait_until(lambda: heard(4))[2:]) == [("firing", "CodecDrift"), ("firing", "TokenRTT")]
        ended = {"endsAt": datetime.now(timezone.utc).isoformat()}
        alertmanager.post([late | ended, drift | ended])
        assert sorted(wait_until(lambda: heard(6))[4:]) == [
            ("resolved", "CodecDrift"),
            ("resolved", "TokenRTT"),
        ]
    finally:
        alertmanager.stop()
        pager.close()


def test_a_test_alert_says_who_took_it_and_status_says_what_fires(tmp_path):
    pager = Pager()
    hooks = f"receivers: {{page_webhook_url: '{pager.url}', ticket_webhook_url: ''}}"
    alertmanager = Alertmanager(tmp_path, hooks)
    config = tmp_path / "omniwatch.yaml"
    config.write_text(f"{hooks}\nsite: {{alertmanager: '{alertmanager.url.removeprefix('http://')}'}}")
    try:
        done = CliRunner().invoke(main, ["page", "--test", "--config.file", str(config)])
        assert done.exit_code == 0, done.output
        assert re.match(r"webhook: taken after \d\.\d s\n", done.stdout)
        notice = pager.notices.get(timeout=10)
        assert (notice.alert, notice.status, notice.labels["device"]) == ("OmniwatchTest", "firing", "orin")
        again = CliRunner().invoke(main, ["page", "--test", "--config.file", str(config)])
        assert again.exit_code == 0, "a second test is not held back as news of the first"
        assert pager.notices.get(timeout=10).labels["test"] != notice.labels["test"]

        burning = fired("RedLineBurn", "page", device="orin", fault="speech")
        burning["annotations"]["cause"] = "rare"
        alertmanager.post(
            [
                burning,
                fired("CodecDrift", "page", device="orin", fault="speech"),
                fired("ModelServerDown", "page", device="orin", fault="server", cause="crash-loop"),
            ]
        )
        settings = parse(config.read_text())
        (server,) = of(settings)
        found = wait_until(
            lambda: [
                one
                for one in firing(server.alerts("orin"))
                if re.match("CodecDrift|ModelServerDown|RedLine", one.says)
            ]
        )
        says = [re.sub(r"since [\d :-]+", "since T", one.says) for one in found]
        assert sorted(says) == [
            "CodecDrift (page) since T, goes to page",
            "ModelServerDown (page, crash-loop) since T, goes to page",
            "RedLineBurn (page, rare) since T, goes to page",
        ]
        assert found[0].ok is False
    finally:
        alertmanager.stop()
        pager.close()


def test_a_test_page_waits_for_the_robots_own_answer(tmp_path):
    """The bridge takes it at once; the robot is away for the first attempts, and then another refuses."""
    robot = StandIn("wecom", lambda attempt: (502, {}) if attempt < 3 else None)
    (tmp_path / "url").write_text(robot.url)
    port = free_port()
    notify = (
        f"notify: {{listen_address: '127.0.0.1:{port}', robots: [{{kind: wecom, url_file: {tmp_path}/url}}]}}"
    )
    alertmanager = Alertmanager(tmp_path, notify)
    config = tmp_path / "omniwatch.yaml"
    config.write_text(f"{notify}\nsite: {{alertmanager: '{alertmanager.url.removeprefix('http://')}'}}")
    bridge = WebhookServer(parse(config.read_text()).notify)
    words = ["page", "--test", "--config.file", str(config)]
    try:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        found = re.fullmatch(r"wecom-0: taken after (\d+\.\d) s, 2 attempts failed\n", done.stdout)
        assert found is not None, done.stdout
        assert float(found[1]) >= 3, "the robot took it after its two pauses"
        assert len(robot.taken) == 1
        (tmp_path / "url").write_text(robot.url.replace("key=tok", "key=other"))
        refused = CliRunner().invoke(main, words)
        assert refused.exit_code == 1
        assert re.match(r"wecom-0: refused after \d\.\d s: 40058: ", refused.stdout), refused.stdout
    finally:
        alertmanager.stop()
        bridge.stop()
        robot.close()


@pytest.mark.parametrize(
    ("links", "title_link", "said"),
    [
        (
            {
                "dashboard_url": "https://grafana.example/d/omni-streaming?from=1&to=2&viewPanel=1",
                "runbook_url": "https://wiki.example/CodecDrift.md",
            },
            "https://wiki.example/CodecDrift.md",
            "Dashboard: https://grafana.example/d/omni-streaming?from=1&to=2&viewPanel=1\n"
            "Runbook: https://wiki.example/CodecDrift.md\n",
        ),
        ({"runbook": "omniwatch runbook CodecDrift"}, None, "Runbook: omniwatch runbook CodecDrift\n"),
    ],
    ids=["addresses", "no-addresses"],
)
def test_a_text_for_slack_has_the_links_and_both_languages(tmp_path, links, title_link, said):
    slack = StandIn("slack")
    (tmp_path / "slack").write_text(slack.url)
    page = f"{{page_webhook_url: '', ticket_webhook_url: '', page: {{slack_api_url_file: {tmp_path}/slack}}}}"
    alertmanager = Alertmanager(tmp_path, f"receivers: {page}")
    try:
        alert = fired("CodecDrift", "page", device="orin", stream="0", cause="lag")
        alert["annotations"] |= {
            "summary_zh": "声音与画面不同步。",
            "why": "Mostly the network: 7 of 9 bad turns in 5m.",
            "why_zh": "主要是网络：7 轮（共 9 轮异常，5m 内）。",
            "access": HOSTILE,
            **links,
        }
        alertmanager.post([alert])
        (told,) = wait_until(lambda: slack.taken)
    finally:
        alertmanager.stop()
        slack.close()
    (attachment,) = told["attachments"]
    since = datetime.fromisoformat(alert["startsAt"]).astimezone().strftime("%m-%d %H:%M:%S %Z")
    assert attachment["title"] == "[FIRING] CodecDrift on orin"
    assert attachment.get("title_link") == title_link
    assert attachment["text"].strip() == (
        "FIRING: CodecDrift (lag): Mostly the network: 7 of 9 bad turns in 5m. CodecDrift fires. "
        f"声音与画面不同步。主要是网络：7 轮（共 9 轮异常，5m 内）。 Since {since}.\n"
        f"{html.escape(said, quote=False)}Device: {html.escape(HOSTILE, quote=False)}"
    )


def test_a_page_and_its_end_reach_a_robot_through_the_bridge(tmp_path):
    robot = StandIn("dingtalk")
    (tmp_path / "url").write_text(robot.url)
    (tmp_path / "secret").write_text(SECRET)
    told = Robot(
        kind="dingtalk", url_file=str(tmp_path / "url"), secret_file=str(tmp_path / "secret"), language="en"
    )
    bridge = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[told]))
    hooks = f"receivers: {{page_webhook_url: 'http://{bridge.address}/page', ticket_webhook_url: '', group_interval_s: 3}}"
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
