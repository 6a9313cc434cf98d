"""A device's page: told once, by whichever way is open, on real Prometheus, vmagent, vmalert and Alertmanagers.

The intervals are shorter than in the field, so that the test is; what Alertmanager and vmagent wait for is as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleet_uplinks import CLEAR, Running
from omniwatch.bundle import render
from omniwatch.settings import Settings
from omniwatch.stack import Notice, Pager, Service, Stack, free_port, get, program
from waiting import wait_until

AWAY_S = 45
"""Longer than the store keeps a series that stopped, than DeviceSilent waits, and than an uplink's error takes to show."""


class Told:
    """What a pager was told so far."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._notices: list[Notice] = []

    def of(self, alert: str, status: str = "firing") -> list[Notice]:
        """Return the messages of one alert."""
        while not self._pager.notices.empty():
            self._notices.append(self._pager.notices.get())
        return [one for one in self._notices if (one.alert, one.status) == (alert, status)]


class Fleet:
    """One device with both its ways to a centre of VictoriaMetrics, vmalert and Alertmanager.

    One that `pages_itself` has only the uplink, and a pager of its own.
    """

    def __init__(self, directory: Path, ending: ExitStack, *, pages_itself: bool = False) -> None:
        self.run = Running(directory, ending)
        self.store = self.run.victoria("-search.maxStalenessInterval=10s")
        pager = Pager()
        ending.callback(pager.close)
        self.central = Told(pager)
        port = free_port()
        self.direct = self.run.link("direct", f"127.0.0.1:{port}", CLEAR)
        self.up = self.run.link("up", self.store.url.removeprefix("http://"), CLEAR)
        settings = self._settings(pager, [] if pages_itself else [self.direct.url])
        self.bundle = directory / "bundle"
        render.write(render.render(settings), self.bundle)
        self.alertmanager = self._alertmanager(port)
        self.stack = Stack(directory / "device", settings, say=lambda line: None)
        self.local = Told(self.stack.pager)
        ending.enter_context(self.stack)
        self.agent = self.run.agent("uplink", self.stack.settings)
        self._vmalert()

    def _settings(self, pager: Pager, alertmanagers: list[str]) -> Settings:
        base = Settings()
        return msgspec.structs.replace(
            base,
            alerts=msgspec.structs.replace(base.alerts, drift_for_s=2, evaluation_interval_s=1),
            receivers=msgspec.structs.replace(
                base.receivers, page_webhook_url=pager.url, ticket_webhook_url=""
            ),
            fleet=msgspec.structs.replace(
                base.fleet,
                remote_write_url=f"{self.up.url}/api/v1/write",
                alertmanagers=alertmanagers,
                agent_address=f"127.0.0.1:{free_port()}",
                interval_s=1,
                flush_s=1,
                evaluation_s=2,
                rule_delay_s=1,
                silent_after_s=20,
            ),
        )

    def _alertmanager(self, port: int) -> Service:
        argv = [
            program("prometheus-alertmanager", "alertmanager"),
            f"--config.file={self.bundle / 'deploy/fleet/centre-alertmanager.yml'}",
            f"--storage.path={self.run.directory / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        return self.run.start("alertmanager", argv, port, "/-/ready")

    def _vmalert(self) -> None:
        port = free_port()
        argv = [
            program("vmalert"),
            f"-rule={self.bundle / 'alerts/fleet.rules.yaml'}",
            f"-rule={self.bundle / 'deploy/fleet/centre-pages.rules.yaml'}",
            "-evaluationInterval=2s",
            "-disableAlertgroupLabel",
            f"-datasource.url={self.store.url}",
            f"-remoteWrite.url={self.store.url}",
            f"-remoteRead.url={self.store.url}",
            f"-notifier.url={self.alertmanager.url}",
            f"-httpListenAddr=127.0.0.1:{port}",
        ]
        self.vmalert = self.run.start("vmalert", argv, port, "/health")

    def raised(self) -> list[dict[str, Any]]:
        """Return what the centre's own rules have firing of CodecDrift."""
        alerts = json.loads(get(f"{self.vmalert.url}/api/v1/alerts"))["data"]["alerts"]
        return [one for one in alerts or [] if one["name"] == "CodecDrift" and one["state"] == "firing"]

    def known(self) -> list[dict[str, Any]]:
        """Return what the centre's Alertmanager has of CodecDrift."""
        alerts = json.loads(get(f"{self.alertmanager.url}/api/v2/alerts"))
        return [one for one in alerts if one["labels"]["alertname"] == "CodecDrift"]

    def reached(self) -> bool:
        """Whether the device believes that the centre hears it."""
        return any(one["labels"]["alertname"] == "CentreReached" for one in self.stack.alerts())

    def goes_up(self) -> bool:
        """Whether the uplink has had no trouble for as long as CentreReached looks back."""
        return any(
            (one["labels"]["alertname"], one["labels"].get("way")) == ("CentreReached", "uplink")
            for one in self.stack.alerts()
        )

    def drift(self) -> Service:
        """Let the voice fall behind for good."""
        return self.stack.simulate("--scenario", "reconnect-jump", "--fault-at", "3", "--mend-at", "1000")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as ending:
        yield Fleet(tmp_path, ending)


def passed(seconds: float) -> None:
    """Wait for time alone to pass: that nothing comes is what is to be seen."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, seconds + 5)


@pytest.mark.timeout(480)
def test_both_ways_are_one_page_and_an_outage_neither_ends_nor_repeats_it(fleet):
    wait_until(fleet.reached, 60, "CentreReached")
    server = fleet.drift()
    wait_until(lambda: fleet.central.of("CodecDrift"), 60, "the page")
    wait_until(fleet.raised, 60, "the same alert by the uplink")
    (alert,) = fleet.known()
    assert {"site": "default", "device": "orin", "model": "qwen3-omni", "release": "1"}.items() <= alert[
        "labels"
    ].items()
    own = {key: value for key, value in fleet.raised()[0]["labels"].items() if key != "alertname"}
    assert own == {key: value for key, value in alert["labels"].items() if key != "alertname"}

    fleet.direct.stop()
    fleet.up.stop()
    passed(AWAY_S)
    wait_until(lambda: fleet.central.of("DeviceSilent"), 30, "DeviceSilent")
    wait_until(lambda: fleet.local.of("CodecDrift"), 150, "the device's own pager, once nobody else hears it")
    assert fleet.raised()

    fleet.up.start()
    fleet.direct.start()
    wait_until(lambda: fleet.central.of("DeviceSilent", "resolved"), 120, "the device is heard again")
    server.stop()
    wait_until(lambda: fleet.central.of("CodecDrift", "resolved"), 150, "the end of the page")
    assert len(fleet.central.of("CodecDrift")) == 1
    assert len(fleet.local.of("CodecDrift")) == 1
    assert fleet.local.of("CodecDrift")[0].labels == fleet.central.of("CodecDrift")[0].labels


@pytest.mark.timeout(480)
def test_a_page_that_cannot_be_sent_directly_comes_by_the_uplink_once(fleet):
    wait_until(fleet.reached, 60, "CentreReached")
    wait_until(fleet.goes_up, 180, "an uplink whose first attempts are forgotten")
    fleet.direct.stop()
    fleet.drift()
    wait_until(lambda: fleet.central.of("CodecDrift"), 90, "the page")
    first = fleet.central.of("CodecDrift")[0]
    told_by = fleet.known()[0]["generatorURL"]
    fleet.direct.start()
    wait_until(
        lambda: fleet.known()[0]["generatorURL"] != told_by, 120, "the same alert from the device itself"
    )
    passed(10)
    assert len(fleet.central.of("CodecDrift")) == 1
    assert fleet.local.of("CodecDrift") == []
    (alert,) = fleet.known()
    assert alert["labels"] == first.labels


@pytest.mark.timeout(600)
def test_a_device_that_pages_itself_is_paged_for_while_its_pager_is_not_reached(tmp_path):
    with ExitStack() as ending:
        fleet = Fleet(tmp_path, ending, pages_itself=True)
        wait_until(fleet.goes_up, 240, "an uplink whose first attempts are forgotten")
        server = fleet.drift()
        wait_until(lambda: fleet.local.of("CodecDrift"), 60, "the page")
        passed(10)
        assert fleet.central.of("CodecDrift") == []
        server.stop()
        wait_until(lambda: fleet.local.of("CodecDrift", "resolved"), 150, "its end")

        fleet.stack.pager.close()
        server = fleet.drift()
        wait_until(lambda: fleet.central.of("CodecDrift"), 240, "the page, from the centre")
        # What Alertmanager was about to send when it was silenced it tries for ten seconds more.
        passed(15)
        back = Pager(int(fleet.stack.pager.url.rpartition(":")[2].partition("/")[0]))
        ending.callback(back.close)
        told = Told(back)
        passed(90)
        assert told.of("CodecDrift") == []
        server.stop()
        wait_until(lambda: fleet.central.of("CodecDrift", "resolved"), 150, "its end")
        assert len(fleet.central.of("CodecDrift")) == 1
        assert told.of("CodecDrift") == []
