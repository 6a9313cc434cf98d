"""A simulated fleet in a process of its own, and the servers around it."""

from __future__ import annotations

import json
import sys
import urllib.parse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from omniwatch.desk.child_process import ChildProcess, free_port, get, program

OMNIWATCH = [sys.executable, "-m", "omniwatch"]


class Place:
    """A directory for the files of processes that end with it."""

    def __init__(self, directory: Path, ending: ExitStack) -> None:
        self.directory = directory
        self._ending = ending

    def start(self, name: str, argv: list[str], ready: str, port: int) -> ChildProcess:
        """Start a process that answers GET `ready` with 200 when it is there."""
        service = ChildProcess(name, argv, self.directory, f"http://127.0.0.1:{port}")
        self._ending.callback(service.stop)
        service.await_ready(ready)
        return service

    def simulated(self, devices: int, *options: str) -> ChildProcess:
        """Serve a simulated fleet."""
        port = free_port()
        listen = f"--web.listen-address=127.0.0.1:{port}"
        argv = [*OMNIWATCH, "simulate", "fleet", str(devices), listen, *options]
        return self.start("simulated", argv, "/", port)

    def prometheus(self, config: dict[str, Any], *flags: str) -> ChildProcess:
        """Start Prometheus with this configuration."""
        port = free_port()
        path = self.directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        argv = [
            program("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={self.directory / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            *flags,
        ]
        return self.start("prometheus", argv, "/-/ready", port)

    def victoria(self, *flags: str) -> ChildProcess:
        """Start a VictoriaMetrics of one node."""
        port = free_port()
        argv = [
            program("victoria-metrics"),
            f"-storageDataPath={self.directory / 'victoria'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-loggerLevel=WARN",
            *flags,
        ]
        return self.start("victoria-metrics", argv, "/health", port)


def scraping(service: ChildProcess, interval: str = "1s") -> dict[str, Any]:
    """Return a configuration that scrapes a simulated fleet, whose labels and times stand."""
    job = {
        "job_name": "uplink",
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "honor_labels": True,
        "http_sd_configs": [{"url": f"{service.url}/targets"}],
    }
    return {"scrape_configs": [job]}


def query(service: ChildProcess, expression: str) -> list[dict[str, Any]]:
    """Return the result of an instant query. Raises OSError."""
    arguments = urllib.parse.urlencode({"query": expression, "nocache": "1"})
    found: list[dict[str, Any]] = json.loads(get(f"{service.url}/api/v1/query?{arguments}"))["data"]["result"]
    return found
