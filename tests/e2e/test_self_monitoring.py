"""What notifies is watched by itself: on a real Prometheus and Alertmanager, a channel that fails is told by another."""

from __future__ import annotations

import http.server
import json
import queue
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from helpers.bundles import replaced
from helpers.waiting import wait_until
from omniwatch.desk.child_process import ChildProcess
from omniwatch.desk.demo.local_stack import Notice, Stack
from omniwatch.settings import Settings
from omniwatch.settings.alerts import Monitoring

FASTER = {
    "alerts/monitoring.rules.yaml": {"interval: 30s": "interval: 1s", "for: 10m": "for: 15s"},
    "deploy/alertmanager/alertmanager.yml": {
        "group_wait: 30s": "group_wait: 1s",
        "group_interval: 1m": "group_interval: 5s",
    },
}


class Hurried(Stack):
    """The chain with shorter waits in its bundle, before any part of it starts."""

    def _serve(self, name: str, argv: list[str], address: str, flags: dict[str, object]) -> ChildProcess:
        if name == "sidecar":
            for path, changes in FASTER.items():
                for old, new in changes.items():
                    replaced(self.directory / "bundle" / path, old, new)
        return super()._serve(name, argv, address, flags)


class Refusing:
    """A webhook that answers every message with 501."""

    def __init__(self) -> None:
        self._server = http.server.HTTPServer(("127.0.0.1", 0), _Silent)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Silent(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def beat(alertmanager: str) -> None:
    """Post a heartbeat: Prometheus' own first one may be a minute late, while it still looks for Alertmanager."""
    alert = {"labels": {"alertname": "Watchdog", "severity": "none", "device": "orin"}}
    post = urllib.request.Request(
        f"{alertmanager}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(post, timeout=10).close()


def told(stack: Stack, alert: str, within_s: float) -> Notice:
    deadline = time.monotonic() + within_s
    while True:
        try:
            notice = stack.pager.notices.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"no {alert}; Prometheus has {stack.alerts()}") from None
        if notice.alert == alert:
            return notice


@pytest.mark.timeout(180)
def test_a_receiver_that_refuses_is_told_by_another(tmp_path: Path) -> None:
    with closing(Refusing()) as refusing:
        receivers = msgspec.structs.replace(Settings().receivers, watchdog_webhook_url=refusing.url)
        settings = msgspec.structs.replace(Settings(), receivers=receivers, monitoring=Monitoring(failures=1))
        with Hurried(tmp_path / "stack", settings, say=lambda line: None, tickets=True) as stack:
            failed = 'alertmanager_notification_requests_failed_total{integration="webhook"}'
            wait_until(lambda: stack.query(f"{failed} == 0"), what="a first scrape of Alertmanager")
            beat(stack.alertmanager.url)
            notice = told(stack, "MonitoringFailing", 100)
            assert (notice.labels["cause"], notice.labels["integration"]) == ("undelivered", "webhook")
            assert notice.labels["device"] == settings.site.device
            assert "to send by webhook" in notice.annotations["description"]
            assert {one["labels"].get("cause") for one in stack.alerts()} == {None, "undelivered"}
