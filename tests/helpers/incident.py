"""Half an hour of three devices for pictures: what a Prometheus would have scraped of them, in event time.

One device has too little CPU for a while, one is driven from cell to cell, one has a good day. Sidecars and host readers are
the real ones; the model server's page is a recorded one, its histograms filled by the requests of this half hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from math import exp, sin
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from helpers.scraped import DATA, GROUP, TREE, systemd
from helpers.trees import grow
from omniwatch.core.streams import StreamTable
from omniwatch.desk.simulation import SCENARIOS, Condition, Scenario, SimulatedListener, events
from omniwatch.events import encode
from omniwatch.host import Host, discover
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.settings import Settings

LENGTH_S = 1800
FAULT_S, MENDED_S = 780, 1080
WARM_S = 90
"""Events begin so much earlier, so that the picture does not."""
CALL = Scenario(
    name="call",
    summary="Two listeners; for five minutes the server has too little CPU.",
    duration_s=LENGTH_S + WARM_S,
    fault_at_s=FAULT_S + WARM_S,
    mended_at_s=MENDED_S + WARM_S,
    fault=Condition(drift_ppm=-900.0, answer_ms=(850.0, 1450.0)),
    speech_s=(5.0, 20.0),
    listeners=(
        SimulatedListener(),
        SimulatedListener(joins_s=WARM_S + 240.0, leaves_s=WARM_S + 1500.0, reports_rtt=True),
    ),
)
DRIVE = msgspec.structs.replace(
    SCENARIOS["handover-120"],
    listeners=(SimulatedListener(), SimulatedListener(reports_rtt=True)),
    duration_s=LENGTH_S + WARM_S,
)
DEVICES = {"orin-1": CALL, "orin-2": DRIVE, "orin-3": SCENARIOS["steady"]}
OVERLOADED = "orin-1"


class Page(NamedTuple):
    """A scrape: the labels of its target, when it was, and what it gave."""

    target: dict[str, str]
    t: float
    families: list[Metric]


def pages(settings: Settings, start: float, directory: Path) -> Iterator[Page]:
    """Yield each scrape of the half hour from `start`, in the order of time."""
    with ExitStack() as ending:
        sidecars = {
            name: Sidecar(settings, scenario, number + 1, start)
            for number, (name, scenario) in enumerate(DEVICES.items())
        }
        machine = Machine(settings, directory, ending)
        server = ModelServer()
        every = settings.alerts.scrape_interval_s
        for n in range(-WARM_S // every + 1, LENGTH_S // every + 1):
            at = float(n * every)
            for name, sidecar in sidecars.items():
                target = {"job": "omniwatch", "device": name, "instance": f"{name}:9842"}
                families = [
                    *sidecar.page(start + at),
                    *(machine.page(at, every) if name == OVERLOADED else ()),
                ]
                yield Page(target, start + at, families)
                if name == OVERLOADED:
                    target = {"job": "model_server", "device": name, "instance": f"{name}:8000"}
                    yield Page(target, start + at, list(server.page(at)))


def load(at: float) -> float:
    """How far the fault has taken hold, from 0 to 1, so many seconds into the half hour."""
    return 1 / (1 + exp(-(at - FAULT_S) / 12)) - 1 / (1 + exp(-(at - MENDED_S) / 12))


class Sidecar:
    """A real sidecar's table, fed with a simulated server's events until each scrape."""

    name = "tail:/run/omniwatch/events.jsonl"
    up = True
    error = None
    absent = False
    caught_up = True

    def __init__(self, settings: Settings, scenario: Scenario, seed: int, start: float) -> None:
        self.invalid: dict[str, int] = {"oversize": 0}
        self._events = events(scenario, seed, start - WARM_S, LENGTH_S + 2.0 * WARM_S)
        self._next = next(self._events)
        self._table = StreamTable(settings)
        self._intake = Intake(self)
        self._chunk = b""

    def read(self, budget: int) -> bytes:
        """Hand over the lines since the last scrape."""
        chunk, self._chunk = self._chunk, b""
        return chunk

    def page(self, now: float) -> Iterable[Metric]:
        """Return what a scrape sees."""
        lines = []
        while self._next.t <= now:
            lines.append(encode(self._next))
            self._next = next(self._events)
        self._chunk = b"".join(lines)
        self._intake.step(self._table, 0)
        self._table.advance(now)
        return collect(ScrapeSnapshot(now, self._table, [self._intake]))

    def state(self) -> dict[str, Any]:
        """Nothing is taken up again."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin at the beginning."""


class Machine:
    """An Orin whose model server gets less CPU than it asks for: its sysfs and cgroup as files, read by the real readers."""

    GPU = "sys/devices/platform/17000000.ga10b"
    RAILS = "sys/devices/platform/c240000.i2c/i2c-1/1-0040/hwmon/hwmon3"
    ZONES = "sys/class/thermal/thermal_zone"

    def __init__(self, settings: Settings, root: Path, ending: ExitStack) -> None:
        self._root = root
        grow(root, (DATA / "jetson" / "jetpack5.tree").read_text(encoding="utf-8"))
        grow(root, TREE)
        ending.enter_context(systemd(root))
        self._host = Host(discover(settings, root), monotonic=lambda: 0.0)
        self._luck = random.Random("machine")
        self._used = self._throttled_s = self._periods = self._throttled = 0.0
        self._heat = 0.0

    def page(self, at: float, every: float) -> Iterable[Metric]:
        """Return what the readers see."""
        bad, luck = load(at), self._luck
        share = min(max(0.002 + 0.34 * bad + luck.gauss(0, 0.02) * bad, 0), 1)
        self._used += every * min(0.39 + 0.12 * bad + luck.gauss(0, 0.012), 0.5) * 1e6
        self._periods += every * 10
        self._throttled += every * 10 * share
        self._throttled_s += every * share * 0.6 * 1e6
        self._heat += (14 * bad + 3 * sin(at / 170) - self._heat) * every / 60
        busy = 0.62 + 0.06 * sin(at / 47) - 0.3 * bad + luck.gauss(0, 0.03)
        files = {
            f"{GROUP}/cpu.stat": f"usage_usec {self._used:.0f}\nnr_periods {self._periods:.0f}\n"
            f"nr_throttled {self._throttled:.0f}\nthrottled_usec {self._throttled_s:.0f}",
            f"{self.GPU}/load": f"{busy * 1000:.0f}",
            f"{self.GPU}/devfreq/17000000.ga10b/cur_freq": f"{1_300_500_000 if busy > 0.45 else 918_000_000}",
            f"{self.RAILS}/curr1_input": f"{300 + 1300 * busy:.0f}",
            f"{self.RAILS}/curr2_input": f"{260 + 120 * bad + luck.gauss(0, 12):.0f}",
            f"{self.RAILS}/curr3_input": f"{790 + luck.gauss(0, 9):.0f}",
            "proc/meminfo": f"MemTotal: 62797580 kB\nMemAvailable: {21_400_000 - 1600 * at:.0f} kB\n"
            f"NvMapMemUsed: {27_700_000 + 40_000 * sin(at / 60):.0f} kB",
        }
        for zone, celsius in ((0, 58), (5, 54), (6, 54.5), (7, 53), (8, 60), (9, 41), (10, 44)):
            own = self._heat * (1 if zone in (0, 8) else 0.5) + luck.gauss(0, 0.15)
            files[f"{self.ZONES}{zone}/temp"] = f"{(celsius + own) * 1000:.0f}"
        for name, content in files.items():
            (self._root / name).write_text(f"{content}\n", encoding="ascii")
        return list(self._host.collect())


class ModelServer:
    """A page that a real vLLM-Omni gave, its numbers made by the requests of this half hour."""

    STAGES = (("0", 170, 0.016), ("1", 150, 0.052), ("2", 0, 0.0))
    """Tokens of a request and seconds a token."""

    def __init__(self) -> None:
        text = (DATA / "wire/vllm-omni-metrics.txt").read_text(encoding="utf-8")
        self._families = {family.name: family for family in text_string_to_metric_families(text)}
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._luck = random.Random("model server")
        self._next_s = -float(WARM_S)
        self._running = self._waiting = 0

    def page(self, at: float) -> Iterable[Metric]:
        """Return the page as it is then."""
        luck, bad = self._luck, load(at)
        while self._next_s <= at:
            self._answer(luck, load(self._next_s))
            self._next_s += luck.uniform(4, 9) * (1 + bad)
        self._running = luck.choice((1, 2, 2)) if bad < 0.5 else 2
        self._waiting = luck.choice((0, 0, 0, 0, 0, 1)) if bad < 0.5 else luck.choice((1, 2, 2, 3))
        self._set("vllm_omni:num_requests_running", self._running)
        self._set("vllm_omni:num_requests_waiting", self._waiting)
        for stage in "012":
            share = {"0": 0.21, "1": 0.16, "2": 0.0}[stage] * (1 + 0.9 * bad) + luck.gauss(0, 0.012)
            self._set("vllm:kv_cache_usage_perc", max(share, 0.0), stage=stage)
            self._set("vllm_omni:stage_waiting_requests", self._waiting if stage == "1" else 0, stage=stage)
            self._add("vllm:num_preemptions", 1.0 if bad > 0.9 and luck.random() < 0.08 else 0.0, stage=stage)
        self._set("process_resident_memory_bytes", 1.34e9 + 9e3 * max(at, 0) + 2e6 * sin(at / 90))
        self._add("process_cpu_seconds", (0.42 + 0.2 * bad + luck.gauss(0, 0.02)) * 5)
        return list(self._metrics())

    def _answer(self, luck: random.Random, bad: float) -> None:
        rtf = luck.uniform(0.52, 0.72) + 0.5 * bad
        speech_s = luck.uniform(5, 20)
        self._observe("vllm_omni:audio_ttfp_s", luck.uniform(0.3, 0.5) + 0.75 * bad * luck.uniform(0.6, 1.2))
        self._observe("vllm_omni:audio_rtf", rtf)
        self._observe("vllm_omni:audio_underrun_s", max(rtf - 1, 0.0) * speech_s)
        self._observe("vllm_omni:audio_duration_s", speech_s)
        self._observe(
            "vllm_omni:request_queue_wait_s", luck.expovariate(60) + 0.4 * bad * luck.uniform(0.3, 1.2)
        )
        self._add("vllm_omni:requests_success", 1, finished_reason="stop")
        for stage, tokens, token_s in self.STAGES:
            slow = 1 + 0.9 * bad
            self._observe(
                "vllm:time_to_first_token_seconds", luck.uniform(0.05, 0.1) * (1 + 3 * bad), stage=stage
            )
            self._add("vllm:generation_tokens", tokens, stage=stage)
            for _ in range(20 if tokens else 0):
                took = token_s * slow * luck.uniform(0.75, 1.3)
                self._observe("vllm:inter_token_latency_seconds", took, stage=stage)

    def _rows(self, family: str, **labels: str) -> Iterator[tuple[str, dict[str, str]]]:
        for sample in self._families[family].samples:
            if all(sample.labels.get(name) == value for name, value in labels.items()):
                yield sample.name, sample.labels

    def _bump(self, name: str, labels: dict[str, str], by: float) -> None:
        key = name, tuple(sorted(labels.items()))
        self._values[key] = self._values.get(key, 0.0) + by

    def _add(self, family: str, by: float, **labels: str) -> None:
        for name, found in self._rows(family, **labels):
            self._bump(name, found, by)

    def _set(self, family: str, value: float, **labels: str) -> None:
        for name, found in self._rows(family, **labels):
            self._values[name, tuple(sorted(found.items()))] = value

    def _observe(self, family: str, value: float, **labels: str) -> None:
        for name, found in self._rows(family, **labels):
            if name.endswith("_sum"):
                self._bump(name, found, value)
            elif "le" not in found or value <= float(found["le"]):
                self._bump(name, found, 1.0)

    def _metrics(self) -> Iterator[Metric]:
        for family in self._families.values():
            metric = Metric(family.name, "", family.type)
            for name, labels, *_ in family.samples:
                metric.add_sample(name, labels, self._values.get((name, tuple(sorted(labels.items()))), 0.0))
            yield metric
