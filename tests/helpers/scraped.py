"""What a device exposes, for a real Prometheus to scrape: an Orin's host readers, and the model server's own page.

Both go on from scrape to scrape, as the real ones do: counters grow.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import math
import signal
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from helpers.paths import DATA
from helpers.trees import grow
from omniwatch.bundle import dashboard_json
from omniwatch.desk.child_process import get
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.host import Host, discover
from omniwatch.settings import Settings

GROUP = "sys/fs/cgroup/system.slice/qwen3-omni.service"
TREE = f"""
sys/fs/cgroup/cgroup.controllers: cpu
{GROUP}/cgroup.procs: 4711
{GROUP}/cgroup.events: populated 1
{GROUP}/cpu.max: 50000 100000
{GROUP}/cpu.stat: usage_usec 0
proc/meminfo: MemTotal: 62797580 kB\\nMemAvailable: 21000000 kB\\nNvMapMemUsed: 774180 kB
"""
COUNTED = ("counter", "histogram")
WINDOW = {"__rate_interval": "20s", "__range": "60s", "__interval": "2s"}


@contextmanager
def served(page: Callable[[], bytes]) -> Iterator[str]:
    """Serve what `page` returns at every path of the address that is yielded."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def orin(root: Path) -> Iterator[str]:
    """Serve the real readers' families of a Jetson of JetPack 5 whose model server is throttled by its quota."""
    grow(root, (DATA / "jetson" / "jetpack5.tree").read_text(encoding="utf-8"))
    grow(root, TREE)
    registry = CollectorRegistry()
    registry.register(Host(discover(Settings(), root)))
    scrapes = 0
    lock = threading.Lock()

    def page() -> bytes:
        nonlocal scrapes
        with lock:
            scrapes += 1
            stat = f"usage_usec {scrapes * 480_000}\nnr_periods {scrapes * 10}\nnr_throttled {scrapes * 3}\n"
            (root / GROUP / "cpu.stat").write_text(f"{stat}throttled_usec {scrapes * 90_000}\n")
            return generate_latest(registry)

    with systemd(root), served(page) as address:
        yield address


@contextmanager
def systemd(root: Path) -> Iterator[None]:
    """Play the recorded conversation with a systemd whose unit is active to whoever connects."""
    lines = (DATA / "systemd" / "bus-active.txt").read_text(encoding="ascii").splitlines()
    script = [(line.split()[0], bytes.fromhex(line.split()[1])) for line in lines]
    path = root / "run/dbus/system_bus_socket"
    path.parent.mkdir(parents=True)

    def play(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = listener.accept()[0]
                with peer, contextlib.suppress(OSError):
                    for direction, data in script:
                        if direction == "in":
                            peer.sendall(data)
                        else:
                            peer.recv(len(data), socket.MSG_WAITALL)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=play, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def scrape_too(stack: Stack, targets: dict[str, str]) -> None:
    """Have the stack's Prometheus scrape these addresses as well, each as a job of the name it stands under."""
    path = stack.directory / "bundle/deploy/prometheus/prometheus.yml"
    config = yaml.safe_load(path.read_text())
    config["scrape_configs"] += [
        {
            "job_name": f"{job}_too",
            "static_configs": [{"targets": [address], "labels": {"device": "orin", "job": job}}],
        }
        for job, address in targets.items()
    ]
    path.write_text(yaml.safe_dump(config))
    stack.prometheus.process.send_signal(signal.SIGHUP)


@contextmanager
def model_server() -> Iterator[str]:
    """Serve a page that a real vLLM-Omni gave, its counters and histograms a tenth larger with every scrape."""
    families = list(text_string_to_metric_families((DATA / "wire/vllm-omni-metrics.txt").read_text()))
    scrapes = 0

    def page() -> bytes:
        nonlocal scrapes
        scrapes += 1
        lines = []
        for family in families:
            name = family.name + ("_total" if family.type == "counter" else "")
            lines.append(f"# TYPE {name} {family.type}")
            for sample in family.samples:
                value = sample.value * (1 + scrapes / 10 if family.type in COUNTED else 1)
                labels = ",".join(f'{label}="{text}"' for label, text in sample.labels.items())
                lines.append(f"{sample.name}{{{labels}}} {value}")
        return "\n".join([*lines, ""]).encode()

    with served(page) as address:
        yield address


def asked(stack: Stack, target: dict[str, Any]) -> list[list[Any]]:
    """Return the series of a panel's target as Grafana would ask for them: their values, NaN left out."""
    query = dashboard_json.filled(target["expr"], WINDOW)
    if target["instant"]:
        return [[series["value"][1]] for series in stack.query(query)]
    now = time.time()
    arguments = {"query": query, "start": now - 60, "end": now, "step": 2}
    address = f"{stack.prometheus.url}/api/v1/query_range?{urllib.parse.urlencode(arguments)}"
    found = json.loads(get(address))["data"]["result"]
    values = [[v for _, v in series["values"] if not math.isnan(float(v))] for series in found]
    return [series for series in values if series]
