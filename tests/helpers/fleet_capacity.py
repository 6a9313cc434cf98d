"""A simulated fleet's load on a centre of this machine: VictoriaMetrics, and Prometheus as the peer, of the same samples.

One vmagent stands for the uplinks of all devices: it asks each every `interval_s` seconds and sends every sample to both engines,
in requests as small as a device's own. Both evaluate the rules of the centre.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from helpers.fleet_servers import Place, scraping
from helpers.waiting import wait_until
from omniwatch.bundle import render
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.desk.simulation.fleet import ALERT, Member, Plan, members, series
from omniwatch.settings import Settings

SLICE_STEPS = 40
"""History is sent in pieces of so many samples a series, so that no series is far behind another."""
IDLE_S = 30.0
SETTLED_S = 3.0
"""vmagent makes blocks of what waits each second."""
REQUEST_SAMPLES = 54
"""What a device sends at once: two samples of each series."""
OWN_LABELS = [
    {"regex": "instance", "action": "labeldrop"},
    {"source_labels": ["job"], "regex": "uplink", "target_label": "job", "replacement": ""},
]
"""A device's series have no labels of a scrape at the centre."""


class Load(NamedTuple):
    """How much: live `minutes` after `history` minutes that were filled in, which the dashboard's queries go over."""

    devices: int
    minutes: float
    history: int
    interval_s: int = 15
    peer: bool = True
    """Whether Prometheus is there, too."""


class Live(NamedTuple):
    """How the live minutes went: shares of one core by process, the 99th percentile of scrapes, bytes not sent yet."""

    cpu: dict[str, float]
    scrape_p99_s: float
    pending_bytes: float
    samples_per_s: float


class Capacity:
    """The servers of one run. `expected` counts the samples that were sent, but for those of alerts."""

    def __init__(self, load: Load, place: Place, say: Callable[[str], None]) -> None:
        self.load = load
        self.expected = 0
        self.directory = place.directory
        self._place = place
        self._say = say
        self._fleet = members(Plan(load.devices))
        self.rows = sum(name != ALERT for name, *_ in series(self._fleet[0], 0))
        """Series of a device, but for those of alerts."""
        self.files = render.render(Settings())
        bundle = place.directory / "bundle"
        render.write(self.files, bundle)
        self.simulated = place.simulated(load.devices)
        self.victoria = place.victoria("-retentionPeriod=1")
        self.engines = {"victoria-metrics": self.victoria}
        if load.peer:
            self.engines["prometheus"] = self._prometheus(bundle / "deploy/fleet/centre-prometheus.yml")
        rules = ("alerts/fleet.rules.yaml", "deploy/fleet/centre-held.rules.yaml")
        self.vmalert = self._vmalert([bundle / name for name in rules])

    def idle(self) -> tuple[float, int]:
        """Return what the centre takes before there is anything: the share of a core, over some seconds, and bytes."""
        centre = (self.victoria, self.vmalert)
        used, began = sum(map(_cpu_s, centre)), time.monotonic()
        wait_until(lambda: time.monotonic() - began > IDLE_S, timeout=2 * IDLE_S)
        share = (sum(map(_cpu_s, centre)) - used) / (time.monotonic() - began)
        return share, sum(map(memory_bytes, centre))

    def fill(self) -> None:
        """Send the history: what the devices would have sent, had they been there."""
        loader = self._vmagent("loader", "-remoteWrite.queues=1", "-remoteWrite.flushInterval=1s")
        began, interval_s = time.monotonic(), self.load.interval_s
        steps = self.load.history * 60 // interval_s
        first = time.time() - (steps + 1) * interval_s
        for step in range(0, steps, SLICE_STEPS):
            times = [first + at * interval_s for at in range(step, min(step + SLICE_STEPS, steps))]
            for at in range(0, len(self._fleet), 50):
                body = b"".join(_lines(self._fleet[at : at + 50], times))
                request = urllib.request.Request(f"{loader.url}/api/v1/import", body)
                urllib.request.urlopen(request, timeout=120).close()
        self.expected += steps * len(self._fleet) * self.rows
        _await_delivery(loader, 600)
        loader.stop()
        self._say(f"history: {self.expected} samples in {time.monotonic() - began:.0f} s")

    def live(self) -> Live:
        """Scrape and send for the live minutes, then until all has arrived."""
        uplinks = self._uplinks()
        services = (*self.engines.values(), self.vmalert, uplinks, self.simulated)
        used = {one.name: _cpu_s(one) for one in services}
        began, due_s = time.monotonic(), self.load.minutes * 60
        wait_until(lambda: time.monotonic() - began > due_s, timeout=due_s + 60)
        took = time.monotonic() - began
        cpu = {one.name: (_cpu_s(one) - used[one.name]) / took for one in services}
        waits = _pending(uplinks)
        p99 = _scrape_p99_s(uplinks)
        self.simulated.stop()
        said = (self.directory / "simulated.log").read_text()
        answers = re.search(r"(\d+) answers", said)
        assert answers, said
        samples = int(answers[1]) * self.rows
        self.expected += samples
        _await_delivery(uplinks, 120)
        uplinks.stop()
        return Live(cpu, p99, waits, samples / took)

    def _prometheus(self, config: Path) -> ChildProcess:
        port = free_port()
        flags = (
            f"--config.file={config}",
            f"--storage.tsdb.path={self.directory / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--web.enable-admin-api",
            "--log.level=error",
        )
        return self._place.start("prometheus", [program("prometheus"), *flags], "/-/ready", port)

    def _vmalert(self, rules: list[Path]) -> ChildProcess:
        port, centre = free_port(), self.victoria.url
        flags = (
            *(f"-rule={path}" for path in rules),
            *(f"-{which}.url={centre}" for which in ("datasource", "remoteWrite", "remoteRead")),
            "-notifier.url=http://127.0.0.1:9",
            "-disableAlertgroupLabel",
            "-evaluationInterval=30s",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-loggerLevel=PANIC",
        )
        return self._place.start("vmalert", [program("vmalert"), *flags], "/health", port)

    def _uplinks(self) -> ChildProcess:
        scrape, keep = self.directory / "uplinks.yml", self.directory / "keep.yml"
        config = scraping(self.simulated, f"{self.load.interval_s}s")
        config["scrape_configs"][0]["metric_relabel_configs"] = OWN_LABELS
        scrape.write_text(yaml.safe_dump(config))
        keep.write_text("- {source_labels: [__name__], regex: 'uplink:.+', action: keep}\n")
        return self._vmagent(
            "uplinks",
            f"-promscrape.config={scrape}",
            f"-remoteWrite.relabelConfig={keep}",
            f"-remoteWrite.maxRowsPerBlock={REQUEST_SAMPLES}",
            "-remoteWrite.queues=16",
        )

    def _vmagent(self, name: str, *flags: str) -> ChildProcess:
        port = free_port()
        own = (
            *(f"-remoteWrite.url={one.url}/api/v1/write" for one in self.engines.values()),
            f"-remoteWrite.tmpDataPath={self.directory / name}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-loggerLevel=ERROR",
        )
        return self._place.start(name, [program("vmagent"), *own, *flags], "/health", port)


def metric(service: ChildProcess, pattern: str) -> float:
    """Return the sum of the samples of a service's own /metrics whose name and labels match."""
    found = re.findall(rf"^{pattern} (\S+)$", get(f"{service.url}/metrics").decode(), re.MULTILINE)
    return sum(map(float, found))


def memory_bytes(service: ChildProcess) -> int:
    """Return what a process has in memory."""
    return int(psutil.Process(service.process.pid).memory_info().rss)


def _pending(vmagent: ChildProcess) -> float:
    names = r"(?:vmagent_remotewrite_pending_data_bytes|vm_persistentqueue_bytes_pending)\{[^}]*\}"
    return metric(vmagent, names)


def _await_delivery(vmagent: ChildProcess, timeout_s: float) -> None:
    """Wait until every block that was made was taken, and no new one was made for longer than samples wait for theirs."""
    made, since = -1.0, 0.0

    def delivered() -> bool:
        nonlocal made, since
        names = (r"blocks_sent_total\{[^}]*\}", "block_size_rows_count")
        sent, now_made = (metric(vmagent, f"vmagent_remotewrite_{name}") for name in names)
        if now_made != made:
            made, since = now_made, time.monotonic()
        return sent == made > 0 and time.monotonic() - since > SETTLED_S

    wait_until(delivered, timeout_s, "all that was sent to arrive")


def _scrape_p99_s(vmagent: ChildProcess) -> float:
    """Return the upper edge of the bucket that holds the 99th percentile of the durations of scrapes."""
    edge = r'vm_promscrape_scrape_duration_seconds_bucket\{vmrange="[^"]*\.\.\.([^"]*)"\} (\d+)'
    found = sorted(
        (float(top), int(count)) for top, count in re.findall(edge, get(f"{vmagent.url}/metrics").decode())
    )
    left = 0.99 * sum(count for _, count in found)
    for top, count in found:
        left -= count
        if left <= 0:
            return top
    return 0.0


def _cpu_s(service: ChildProcess) -> float:
    times = psutil.Process(service.process.pid).cpu_times()
    return float(times.user + times.system)


def _lines(fleet: Sequence[Member], times: Sequence[float]) -> Iterator[bytes]:
    """Yield a line of VictoriaMetrics' JSON import for each series of these devices."""
    for member in fleet:
        found: dict[tuple[str, str], tuple[list[float], list[int]]] = {}
        for t in times:
            for name, labels, value in series(member, t):
                values, stamps = found.setdefault((name, labels), ([], []))
                values.append(value)
                stamps.append(round((t + member.skew_s) * 1000))
        own = {"site": member.site, "device": member.name, "model": member.model, "release": member.release}
        for (name, labels), (values, stamps) in found.items():
            labelled = {"__name__": name, **dict(re.findall(r'(\w+)="([^"]*)"', labels)), **own}
            line = {"metric": labelled, "values": values, "timestamps": stamps}
            yield json.dumps(line, separators=(",", ":")).encode() + b"\n"
