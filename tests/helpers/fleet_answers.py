"""How an engine that holds a fleet answers, and what it wrote to the disk."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from helpers.fleet_capacity import Capacity, metric
from helpers.waiting import wait_until
from omniwatch.bundle import dashboard_json
from omniwatch.desk.child_process import ChildProcess, get
from omniwatch.desk.simulation.fleet import BAD, VALUES

TIMEOUT_S = 120.0
ARRIVE_S = 15.0


class Timed(NamedTuple):
    """A query: what it took, where it stands, how many series came and how many bytes."""

    seconds: float
    place: str
    series: int
    bytes: int


class Disk(NamedTuple):
    """What an engine keeps: bytes of samples, bytes of its index, and how many samples that is."""

    data_bytes: int
    index_bytes: int
    samples: int


def stored(engine: ChildProcess, run: Capacity) -> int:
    """Count what queries find of all that was sent, giving it time to show."""
    window = round(run.load.history * 60 + run.load.minutes * 60 + 1800)
    # Some clocks are ahead: their samples are of the future.
    when = time.time() + 600

    def count() -> int:
        total = 0
        for name in (*VALUES, BAD):
            arguments = {"query": f"sum(count_over_time({name}[{window}s]))", "time": when, "nocache": 1}
            body = _fetch(f"{engine.url}/api/v1/query?{urllib.parse.urlencode(arguments)}")
            total += sum(int(one["value"][1]) for one in json.loads(body)["data"]["result"])
        return total

    deadline = time.monotonic() + ARRIVE_S
    while (total := count()) != run.expected and time.monotonic() < deadline:
        pass
    return total


def dashboard(engine: ChildProcess, run: Capacity) -> list[Timed]:
    """Ask all that the fleet's dashboard asks, over the whole of the run, with no cache."""
    model = next(json.loads(text) for path, text in run.files.items() if path.name == "fleet.json")
    span_s = round(run.load.history * 60 + run.load.minutes * 60)
    windows = {"__rate_interval": "1m", "__range": f"{span_s}s", "__interval": "15s"}
    return list(_asked(engine, model, windows, span_s))


def _asked(
    engine: ChildProcess, model: dict[str, Any], windows: dict[str, str], span_s: int
) -> Iterator[Timed]:
    now = time.time()
    for panel in dashboard_json.panels(model):
        for target in panel["targets"]:
            arguments: dict[str, Any] = {
                "query": dashboard_json.filled(target["expr"], windows),
                "nocache": 1,
            }
            kind = "query"
            if not target["instant"]:
                kind = "query_range"
                arguments |= {"start": now - span_s, "end": now, "step": max(15, span_s // 1000)}
            began = time.perf_counter()
            body = _fetch(f"{engine.url}/api/v1/{kind}", urllib.parse.urlencode(arguments).encode())
            took = time.perf_counter() - began
            found = len(json.loads(body)["data"]["result"])
            yield Timed(took, f"panel {panel['id']} {target['refId']}", found, len(body))


def victoria_disk(engine: ChildProcess) -> Disk:
    """Have VictoriaMetrics write all it has, merged, and say how large that is."""
    get(f"{engine.url}/internal/force_flush")
    urllib.request.urlopen(f"{engine.url}/internal/force_merge", timeout=TIMEOUT_S).close()
    wait_until(lambda: metric(engine, r"vm_active_force_merges") == 0, timeout=TIMEOUT_S)
    data = metric(engine, r'vm_data_size_bytes\{type="storage/[^"]*"\}')
    return Disk(
        int(data),
        int(metric(engine, r'vm_data_size_bytes\{type="indexdb[^"]*"\}')),
        int(metric(engine, r'vm_rows\{type="storage/[^"]*"\}')),
    )


def prometheus_disk(engine: ChildProcess, run: Capacity) -> Disk:
    """Have Prometheus write blocks of all it has, and say how large those are."""
    name = json.loads(_fetch(f"{engine.url}/api/v1/admin/tsdb/snapshot", b""))["data"]["name"]
    blocks = [path.parent for path in (run.directory / "prometheus/snapshots" / name).glob("*/meta.json")]
    metas = [json.loads((block / "meta.json").read_text()) for block in blocks]
    return Disk(
        sum(_size(block / "chunks") for block in blocks),
        sum(_size(block / "index") for block in blocks),
        sum(meta["stats"]["numSamples"] for meta in metas),
    )


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files)


def _fetch(address: str, form: bytes | None = None) -> bytes:
    with urllib.request.urlopen(address, form, timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read()
    return body
