"""Devices that send their alerts to the fleet's Alertmanager themselves, through a relay that can be cut: real servers, sped up.

Each minute of the field is four seconds here: Prometheus' resend delay (a flag) and Alertmanager's intervals (its configuration). What has
no setting is as it is: vmagent tries again after up to a minute, and Prometheus forgets an alert fifteen minutes after its end.
"""

from __future__ import annotations

import http.server
import re
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import yaml

from helpers.fleet_uplinks import CLEAR, Running
from helpers.waiting import wait_until
from omniwatch.bundle import render
from omniwatch.desk.child_process import ChildProcess, free_port, program
from omniwatch.desk.demo.local_stack import Notice, Pager
from omniwatch.settings import Settings

MINUTE_S = 4
"""A minute of the field."""
RESEND_S = MINUTE_S + 2
"""Pause between two sends of an alert. Alertmanager takes it for over after four, before which the centre's rules have to hold it; they
are not sped up as much.
"""
BUSY_S = 10
"""How long scrapes may fail on a busy machine: a fault that is not seen for so long is not over."""
KINDS = {
    "speech": "CodecDrift",
    "server": "ModelServerDown",
    "sight": "SidecarBlind",
    "device": "MemoryNearlyGone",
}
"""An alert of each kind of fault, sent as a page; none explains another."""
DURATIONS = re.compile(r"\b(group_wait|group_interval): (\d+)(s|m|h)\b")
UNITS = {"s": 1, "m": 60, "h": 3600}


def quicker(text: str) -> str:
    """Return an Alertmanager's configuration with its intervals sped up, but for that at which it says the same again."""
    return DURATIONS.sub(
        lambda found: (
            f"{found[1]}: {max(1, int(found[2]) * UNITS[found[3]] * MINUTE_S // 60)}s"
            if found[2] != "0"
            else found[0]
        ),
        text,
    )


class Told:
    """What a pager was told so far, and when."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._notices: list[Notice] = []

    def of(self, device: str, alert: str, status: str = "firing") -> list[Notice]:
        """Return the messages about one alert of one device."""
        while not self._pager.notices.empty():
            self._notices.append(self._pager.notices.get())
        return [
            one
            for one in self._notices
            if (one.labels.get("device"), one.alert, one.status) == (device, alert, status)
        ]


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a Prometheus that ends in the middle of a scrape."""


class Faults:
    """In place of a device's sidecar: a gauge of each kind of fault, set by the test."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        faults = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                lines = [f'fault{{kind="{kind}"}} {int(kind in faults.now)}\n' for kind in KINDS]
                body = "".join(lines).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        Handler.do_GET.__doc__ = "Answer a scrape."
        self._server = _Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class Centre:
    """VictoriaMetrics, vmalert, Alertmanager, and a pager that is told."""

    def __init__(self, run: Running) -> None:
        self.run = run
        self.store = run.victoria("-search.maxStalenessInterval=10s")
        pager = Pager()
        run.ending.callback(pager.close)
        self.told = Told(pager)
        base = Settings()
        self.settings = msgspec.structs.replace(
            base,
            alerts=msgspec.structs.replace(base.alerts, evaluation_interval_s=1),
            receivers=msgspec.structs.replace(
                base.receivers, page_webhook_url=pager.url, ticket_webhook_url=""
            ),
            fleet=msgspec.structs.replace(
                base.fleet,
                interval_s=1,
                flush_s=1,
                evaluation_s=2,
                rule_delay_s=1,
                held_after_s=6,
                silent_after_s=20,
            ),
        )
        self.bundle = run.directory / "centre"
        render.write(render.render(self.settings), self.bundle)
        config = self.bundle / "deploy/fleet/centre-alertmanager.yml"
        config.write_text(quicker(config.read_text()))
        self.alertmanager = self._alertmanager(config)
        self.vmalert = self._vmalert()

    def stall(self, seconds: float) -> None:
        """Stop the evaluation of rules for a while, as a machine does that is short of CPU."""
        self.vmalert.process.send_signal(signal.SIGSTOP)
        passed(seconds)
        self.vmalert.process.send_signal(signal.SIGCONT)

    def _alertmanager(self, config: Path) -> ChildProcess:
        port = free_port()
        argv = [
            program("prometheus-alertmanager", "alertmanager"),
            f"--config.file={config}",
            f"--storage.path={self.run.directory / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        return self.run.start("alertmanager", argv, port, "/-/ready")

    def _vmalert(self) -> ChildProcess:
        port = free_port()
        argv = [
            program("vmalert"),
            f"-rule={self.bundle / 'alerts/fleet.rules.yaml'}",
            f"-rule={self.bundle / 'deploy/fleet/centre-held.rules.yaml'}",
            "-evaluationInterval=2s",
            f"-datasource.url={self.store.url}",
            f"-remoteWrite.url={self.store.url}",
            f"-remoteRead.url={self.store.url}",
            f"-notifier.url={self.alertmanager.url}",
            f"-httpListenAddr=127.0.0.1:{port}",
        ]
        return self.run.start("vmalert", argv, port, "/health")


class Device:
    """A Prometheus with the bundle's configuration, whose alerts and samples go through relays."""

    def __init__(self, name: str, centre: Centre, scenario: str = CLEAR) -> None:
        run, self.name, self._centre = centre.run, name, centre
        self.faults = Faults()
        run.ending.callback(self.faults.close)
        self._links = [
            run.link(f"{name}-{of}", to.url.removeprefix("http://"), scenario)
            for of, to in (("alerts", centre.alertmanager), ("samples", centre.store))
        ]
        alerts, samples = self._links
        port = free_port()
        base = centre.settings
        settings = msgspec.structs.replace(
            base,
            site=msgspec.structs.replace(
                base.site, device=name, exporter=self.faults.address, model_server=""
            ),
            fleet=msgspec.structs.replace(
                base.fleet,
                alertmanager_urls=[alerts.url],
                remote_write_url=f"{samples.url}/api/v1/write",
                prometheus=f"127.0.0.1:{port}",
                agent_address=f"127.0.0.1:{free_port()}",
            ),
        )
        bundle = run.directory / f"{name}-bundle"
        render.write(render.render(settings), bundle)
        rules = [
            {
                "alert": alert,
                "expr": f'max by (device) (last_over_time(fault{{kind="{kind}"}}[{BUSY_S}s])) > 0',
                "for": "2s",
                "labels": {"severity": "page"},
            }
            for kind, alert in KINDS.items()
        ]
        groups = [{"name": "faults", "interval": "1s", "rules": rules}]
        (bundle / "faults.rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        config = bundle / "deploy/prometheus/prometheus.yml"
        loaded = yaml.safe_load(config.read_text())
        loaded["rule_files"] = ["../../faults.rules.yaml", "../../alerts/uplink.rules.yaml"]
        config.write_text(yaml.safe_dump(loaded))
        argv = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={run.directory / name}-tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--rules.alert.resend-delay={RESEND_S}s",
            "--log.level=warn",
        ]
        self.prometheus = run.start(f"{name}-prometheus", argv, port, "/-/ready")
        run.agent(f"{name}-uplink", settings)

    def cut(self) -> None:
        """Let nothing through to the centre."""
        for link in self._links:
            link.stop()

    def mend(self) -> float:
        """Let everything through again; return the time."""
        for link in self._links:
            link.start()
        return time.time()

    def count(self, kind: str) -> tuple[int, int]:
        """Return how often the pager was told the begin and the end of a page of this kind."""
        alert = KINDS[kind]
        return tuple(len(self._centre.told.of(self.name, alert, status)) for status in ("firing", "resolved"))

    def await_count(self, kind: str, begins: int, ends: int, within_s: float) -> float:
        """Wait until the pager was told so often; return the time of the newest message."""
        alert = KINDS[kind]
        what = f"{self.name}: {alert} told {begins} times, its end {ends} times, not {self.count(kind)}"
        wait_until(lambda: self.count(kind) >= (begins, ends) and self.count(kind)[1] >= ends, within_s, what)
        assert self.count(kind) == (begins, ends), what
        told = [
            one for status in ("firing", "resolved") for one in self._centre.told.of(self.name, alert, status)
        ]
        return max(one.received_t for one in told)


def passed(seconds: float) -> None:
    """Wait for time alone to pass: that nothing comes is what is to be seen."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, seconds + 5)


def start(directory: Path, ending: ExitStack) -> Centre:
    """Start a centre whose servers end with the context."""
    return Centre(Running(directory, ending))
