"""What notifies is watched by itself: on a real Prometheus and Alertmanager, a channel that fails is told by another."""

from __future__ import annotations

import http.server
import queue
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec

from helpers.bundles import replaced
from omniwatch.demo.local_stack import Notice, Stack
from omniwatch.settings import Settings
from omniwatch.settings.alerts import Monitoring

FASTER = {
    "alerts/monitoring.rules.yaml": {"interval: 30s": "interval: 1s", "for: 10m": "for: 15s"},
    "deploy/alertmanager/alertmanager.yml": {"group_wait: 30s": "group_wait: 1s"},
}


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


def told(stack: Stack, alert: str, within_s: float) -> Notice:
    deadline = time.monotonic() + within_s
    while True:
        try:
            notice = stack.pager.notices.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"no {alert}; Prometheus has {stack.alerts()}") from None
        if notice.alert == alert:
            return notice


def test_a_receiver_that_refuses_is_told_by_another(tmp_path: Path) -> None:
    with closing(Refusing()) as refusing:
        receivers = msgspec.structs.replace(Settings().receivers, watchdog_webhook_url=refusing.url)
        settings = msgspec.structs.replace(Settings(), receivers=receivers, monitoring=Monitoring(failures=1))
        with Stack(tmp_path / "stack", settings, say=lambda line: None, tickets=True) as stack:
            for path, changes in FASTER.items():
                for old, new in changes.items():
                    replaced(stack.directory / "bundle" / path, old, new)
            for process in (stack.prometheus.process, stack.alertmanager.process):
                process.send_signal(signal.SIGHUP)
            notice = told(stack, "MonitoringFailing", 75)
            assert (notice.labels["cause"], notice.labels["integration"]) == ("undelivered", "webhook")
            assert notice.labels["device"] == settings.site.device
            assert "to send by webhook" in notice.annotations["description"]
            assert {one["labels"].get("cause") for one in stack.alerts()} == {None, "undelivered"}
