"""Start the whole chain on loopback, for a demonstration or a test: from sidecar to a receiver of pages."""

from __future__ import annotations

import http.server
import json
import queue
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from omniwatch.bundle import render
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.settings import Settings

T = TypeVar("T", bound="LocalServers")


class Notice(NamedTuple):
    """What the pager received, and when (seconds since the epoch): `status` is "firing" or "resolved"."""

    received_t: float
    status: str
    alert: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Pager:
    """A webhook receiver that keeps what Alertmanager sends."""

    def __init__(self, port: int = 0) -> None:
        notices = self.notices = queue.SimpleQueue[Notice]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                for alert in body["alerts"]:
                    labels = alert["labels"]
                    fields = (alert["status"], labels["alertname"], labels, alert["annotations"])
                    notices.put(Notice(time.time(), *fields))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Keep the terminal for the timeline."""

        Handler.do_POST.__doc__ = "Take what an Alertmanager webhook sends."
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/page"
        threading.Thread(target=self._server.serve_forever, name="pager", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class LocalServers:
    """Servers on loopback and a pager: `with` starts them, and ends them in the reverse order."""

    def __init__(self) -> None:
        self._services: list[ChildProcess] = []
        self.pager = Pager()

    def __enter__(self: T) -> T:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End everything that was started, last first."""
        for service in reversed(self._services):
            service.stop()
        self.pager.close()


class Stack(LocalServers):
    """The chain in `directory`, started by `with`: events go to `events`, pages come out of `pager.notices`.

    Of a model server only its address is given: it is scraped there. With `tickets` these come to the pager, too.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings | None = None,
        say: Callable[[str], None] = print,
        *,
        model_server: str = "",
        tickets: bool = False,
    ) -> None:
        self.directory = directory
        self.events = directory / "run" / "events.jsonl"
        self._say = say
        super().__init__()
        ports = [free_port() for _ in range(3)]
        self._sidecar_at, self._prometheus_at, self._alertmanager_at = (f"127.0.0.1:{port}" for port in ports)
        base = settings or Settings()
        self.settings = msgspec.structs.replace(
            base,
            sources=[f"tail:{self.events}"],
            site=msgspec.structs.replace(
                base.site,
                exporter=self._sidecar_at,
                alertmanager=self._alertmanager_at,
                model_server=model_server,
            ),
            fleet=msgspec.structs.replace(base.fleet, prometheus=self._prometheus_at),
            receivers=msgspec.structs.replace(
                base.receivers,
                page_webhook_url=self.pager.url,
                # In the field five minutes: a demonstration does not wait for the end of a page.
                group_interval_s=5,
                ticket_webhook_url=self.pager.url if tickets else "",
            ),
        )

    def _start(self) -> None:
        prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager", "alertmanager")
        self._say(f"the live page, in a browser: http://{self._sidecar_at}")
        self.events.parent.mkdir(parents=True)
        bundle = self.directory / "bundle"
        render.write(render.render(self.settings), bundle)
        config = self.directory / "omniwatch.yaml"
        config.write_bytes(msgspec.yaml.encode(self.settings))
        self.sidecar = self._serve(
            "sidecar",
            [sys.executable, "-m", "omniwatch", "exporter"],
            self._sidecar_at,
            {"config.file": config, "state-dir": self.directory / "state"},
        )
        self.alertmanager = self._serve(
            "alertmanager",
            [alertmanager],
            self._alertmanager_at,
            {
                "config.file": bundle / "deploy/alertmanager/alertmanager.yml",
                "storage.path": self.directory / "alertmanager",
                "cluster.listen-address": "",
                "log.level": "warn",
            },
        )
        self.prometheus = self._serve(
            "prometheus",
            [prometheus],
            self._prometheus_at,
            {
                "config.file": bundle / "deploy/prometheus/prometheus.yml",
                "storage.tsdb.path": self.directory / "tsdb",
                "log.level": "warn",
            },
        )
        self.sidecar.await_ready("/-/healthy")
        self.alertmanager.await_ready("/-/ready")
        self.prometheus.await_ready("/-/ready")

    def _serve(self, name: str, argv: list[str], address: str, flags: dict[str, object]) -> ChildProcess:
        settled = [f"--{flag}={value}" for flag, value in flags.items()]
        return self.run(name, [*argv, *settled, f"--web.listen-address={address}"], address)

    def run(self, name: str, argv: list[str], address: str = "") -> ChildProcess:
        """Start a process that ends with the chain."""
        service = ChildProcess(name, argv, self.directory, f"http://{address}")
        self._services.append(service)
        self._say(f"{name}: {service.url if address else ' '.join(argv[3:])}")
        return service

    def simulate(self, *arguments: str) -> ChildProcess:
        """Let `omniwatch simulate` write the events."""
        return self.run(
            "server", [sys.executable, "-m", "omniwatch", "simulate", *arguments, f"--out={self.events}"]
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query. Raises OSError."""
        address = f"{self.prometheus.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        result: list[dict[str, Any]] = json.loads(get(address))["data"]["result"]
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts Prometheus holds, pending and firing. Raises OSError."""
        found: list[dict[str, Any]] = json.loads(get(f"{self.prometheus.url}/api/v1/alerts"))["data"][
            "alerts"
        ]
        return found
