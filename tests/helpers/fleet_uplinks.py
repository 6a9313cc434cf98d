"""Devices that know what they have given, their agents, the link between, and the centre."""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.parse
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from helpers.fleet_servers import OMNIWATCH
from omniwatch.bundle import render
from omniwatch.centre.uplink_metrics import FAMILIES, PREFIX
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.settings import Settings

CLEAR = "{about: A mobile network on a good day., rtt_ms: 60, jitter_ms: 10}"
"""A scenario of the relay."""
Series = tuple[tuple[str, str], ...]


def named(files: dict[PurePosixPath, str]) -> dict[str, str]:
    """Return a rendered bundle by file name."""
    return {path.name: text for path, text in files.items()}


class Given:
    """In place of a device's Prometheus: answers /federate with every family, and remembers each sample it gave.

    With `alert`, a page fires on it all the time; its clock is `ahead_s`.
    """

    def __init__(self, device: str, *, alert: bool = False, ahead_s: float = 0) -> None:
        self.labels = {"site": "home", "device": device, "model": "omni", "release": "1"}
        self.times: list[int] = []
        """When it was asked and the answer was taken, in milliseconds since the epoch."""
        self.open = True
        given = self
        lines = [
            "".join(f'{name}="{value}",' for name, value in self.labels.items()) + more
            for more in (
                "",
                'alertname="CodecDrift",severity="page",instance="orin:9842",job="omniwatch",stream="0"',
            )
        ]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                now = time.time() + ahead_s
                if not given.open:
                    self.send_error(503)
                    return
                t = int(now * 1000)
                body = [
                    f"{family.name}{{{lines[0]}}} {now if 'time' in family.name else t // 1000 % 977} {t}\n"
                    for family in FAMILIES
                    if family.name != "uplink:alert_firing"
                ]
                if alert:
                    body.append(f"uplink:alert_firing{{{lines[1]}}} {now} {t}\n")
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write("".join(body).encode())
                given.times.append(t)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        Handler.do_GET.__doc__ = "Answer."
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class Running:
    """Starts what a test needs in a directory, and ends it with the test."""

    def __init__(self, directory: Path, ending: ExitStack) -> None:
        self.directory = directory
        self.ending = ending

    def start(self, name: str, argv: list[str], port: int, ready: str = "") -> ChildProcess:
        """Start a process that listens on a port; with `ready` wait until it answers there."""
        service = ChildProcess(name, argv, self.directory, f"http://127.0.0.1:{port}")
        self.ending.callback(service.stop)
        if ready:
            service.await_ready(ready)
        return service

    def given(self, device: str, *, alert: bool = False, ahead_s: float = 0) -> Given:
        """Start the stand-in for a device's Prometheus."""
        found = Given(device, alert=alert, ahead_s=ahead_s)
        self.ending.callback(found.close)
        return found

    def victoria(self, *flags: str) -> ChildProcess:
        """Start the centre's store."""
        port = free_port()
        argv = [
            program("victoria-metrics"),
            f"-storageDataPath={self.directory / 'store'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-loggerLevel=WARN",
            "-search.latencyOffset=1s",
            *flags,
        ]
        return self.start("victoria-metrics", argv, port, "/health")

    def link(self, name: str, to: str, scenario: str) -> ChildProcess:
        """Start the project's relay; its url is where agents connect."""
        port = free_port()
        path = self.directory / f"{name}.yaml"
        path.write_text(scenario)
        argv = [
            *OMNIWATCH,
            "link",
            "--to",
            to,
            "--web.listen-address",
            f"127.0.0.1:{port}",
            "--scenario",
            str(path),
        ]
        return self.start(name, argv, port)

    def agent(self, name: str, settings: Settings) -> ChildProcess:
        """Start the uplink as the rendered unit would: its flags, with this directory's paths.

        Files of credentials are named as the unit's credentials are.
        """
        home = self.directory / name
        home.mkdir()
        files = named(render.render(settings))
        for secret in filter(None, (settings.fleet.token_file, settings.fleet.ca_file)):
            (home / Path(secret).name).write_bytes(Path(secret).read_bytes())
        for file in ("uplink.yml", "uplink-relabel.yml", "uplink-prometheus.yml"):
            (home / file).write_text(
                files[file].replace("/run/credentials/omniwatch-uplink.service", str(home))
            )
        unit = (
            files["omniwatch-uplink.service"]
            .replace("\\\n", "")
            .replace("${CREDENTIALS_DIRECTORY}", str(home))
        )
        (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        words = line.removeprefix("ExecStart=").replace("/etc/omniwatch", str(home)).split()
        argv = [word.replace("/var/lib/omniwatch-uplink", str(home / "queue")) for word in words]
        port = int(settings.fleet.agent_address.rpartition(":")[2])
        ready = "/health" if settings.fleet.agent == "vmagent" else "/-/ready"
        return self.start(name, [program(Path(argv[0]).name), *argv[1:]], port, ready)


def joined(centre: ChildProcess, federate: str, **changes: Any) -> Settings:
    """Return a device's settings: its Prometheus at `federate`, the centre behind `centre`, fifteen times as fast."""
    defaults = Settings()
    fleet = {
        "remote_write_url": f"{centre.url}/api/v1/write",
        "prometheus": federate,
        "agent_address": f"127.0.0.1:{free_port()}",
        "interval_s": 1,
        "flush_s": 1,
    }
    return msgspec.structs.replace(defaults, fleet=msgspec.structs.replace(defaults.fleet, **fleet | changes))


def arrived(store: ChildProcess, device: str) -> dict[Series, list[int]]:
    """Return the times of every sample of a device at the centre, by series. Raises OSError."""
    selector = f'{{__name__=~"{PREFIX}.+",device="{device}"}}'
    query = urllib.parse.urlencode({"match[]": selector})
    get(f"{store.url}/internal/force_flush")
    lines = get(f"{store.url}/api/v1/export?{query}").splitlines()
    found = (json.loads(line) for line in lines)
    return {tuple(sorted(one["metric"].items())): sorted(one["timestamps"]) for one in found}


def newest_s(store: ChildProcess, device: str) -> float:
    """Return the time of the newest sample of a device at the centre, 0 before the first. Raises OSError."""
    try:
        times = [max(times) for times in arrived(store, device).values()]
    except OSError:
        return 0.0
    return max(times, default=0) / 1000
