"""A device, its uplink and its centre, and what the pagers of both are told: real Prometheus, vmagent, vmalert, Alertmanagers.

The intervals are shorter than in the field, so that the tests are; what Alertmanager and vmagent wait for is as it is.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

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
    """A device that pages itself, its uplink, and a centre of VictoriaMetrics, vmalert and Alertmanager with a pager of its own."""

    def __init__(self, directory: Path, ending: ExitStack) -> None:
        self._ending = ending
        self.run = Running(directory, ending)
        self.store = self.run.victoria("-search.maxStalenessInterval=10s")
        pager = Pager()
        ending.callback(pager.close)
        self.central = Told(pager)
        self.up = self.run.link("up", self.store.url.removeprefix("http://"), CLEAR)
        settings = self._settings(pager)
        self.bundle = directory / "bundle"
        render.write(render.render(settings), self.bundle)
        self.alertmanager = self._alertmanager(free_port())
        self.stack = Stack(directory / "device", settings, say=lambda line: None)
        self.local = Told(self.stack.pager)
        ending.enter_context(self.stack)
        self.agent = self.run.agent("uplink", self.stack.settings)
        self._vmalert()

    def _settings(self, pager: Pager) -> Settings:
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

    def reached(self) -> bool:
        """Whether the uplink has had no trouble for as long as is looked back."""
        return bool(self.stack.query("centre:reached"))

    def close_pager(self) -> None:
        """Let the device's pager not be reached."""
        self.stack.pager.close()

    def open_pager(self) -> Told:
        """Let it be reached again, and return what it is told from now on."""
        back = Pager(int(self.stack.pager.url.rpartition(":")[2].partition("/")[0]))
        self._ending.callback(back.close)
        return Told(back)

    def drift(self) -> Service:
        """Let the voice fall behind for good."""
        return self.stack.simulate("--scenario", "reconnect-jump", "--fault-at", "3", "--mend-at", "1000")


def fingerprints(alertmanager: Service, alert: str) -> set[str]:
    """Return what an Alertmanager knows its alerts of this name by."""
    known: list[dict[str, Any]] = json.loads(get(f"{alertmanager.url}/api/v2/alerts"))
    return {one["fingerprint"] for one in known if one["labels"]["alertname"] == alert}


def passed(seconds: float) -> None:
    """Wait for time alone to pass: that nothing comes is what is to be seen."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, seconds + 5)


def ends_once(server: Service, teller: Told, other: Told) -> None:
    """Let the voice be well again: hold that one pager was told the begin and the end of CodecDrift, and the other nothing."""
    server.stop()
    wait_until(lambda: teller.of("CodecDrift", "resolved"), 150, "the end of the page")
    passed(30)
    assert len(teller.of("CodecDrift")) == len(teller.of("CodecDrift", "resolved")) == 1
    assert other.of("CodecDrift") == other.of("CodecDrift", "resolved") == []
