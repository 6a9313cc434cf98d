"""A fleet on one node of this machine: does it keep up, what does it take, how fast is the fleet's dashboard?

VictoriaMetrics with vmalert, and as the peer, with the same samples, Prometheus:

    python tests/bench/fleet.py                                           # a short run
    python tests/bench/fleet.py --devices 2000 --minutes 4 --history 60   # the figures of docs/fleet.md
    python tests/bench/fleet.py --devices 10000 --minutes 3 --history 5 --no-peer
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers import fleet_answers as answers
from helpers.fleet_answers import Disk
from helpers.fleet_capacity import Capacity, Live, Load, memory_bytes
from helpers.fleet_servers import Place
from omniwatch.desk.child_process import ChildProcess

GOAL_QUERY_S = 2.0
ENOUGH = 1000
"""With fewer devices, what they take is lost in what the servers do anyway."""
EXTRAPOLATED = (10_000, 100_000)


class Taken(NamedTuple):
    """What a centre takes."""

    cores: float
    bytes: int


def kept_up(run: Capacity, live: Live) -> bool:
    """Print how ingestion went; return whether all that was sent is in VictoriaMetrics."""
    print(
        f"live: {live.samples_per_s:.0f} samples/s; scrape p99 {live.scrape_p99_s * 1000:.0f} ms; not sent yet at its end: "
        f"{live.pending_bytes:.0f} bytes"
    )
    whole = False
    for name, engine in run.engines.items():
        found = answers.stored(engine, run)
        whole = whole or (engine is run.victoria and found == run.expected)
        print(f"  {name}: {found} of {run.expected} samples are there ({found - run.expected:+d})")
    return whole


def asked(engine: ChildProcess, run: Capacity) -> float:
    """Print how fast the dashboard is; return the seconds of its slowest query."""
    found = answers.dashboard(engine, run)
    slow = max(found)
    print(
        f"{engine.name}: {len(found)} queries of the fleet's dashboard, slowest {slow.seconds:.2f} s ({slow.place}: "
        f"{slow.series} series, {slow.bytes / 1e6:.1f} MB), all {sum(one.seconds for one in found):.1f} s"
    )
    return slow.seconds


def kept(name: str, disk: Disk) -> float:
    """Print what is on the disk; return bytes a sample, the index left out."""
    each = disk.data_bytes / disk.samples
    print(
        f"{name}: {disk.samples} samples on the disk, {each:.2f} bytes each, index {disk.index_bytes / 1e6:.1f} MB"
    )
    return each


def extrapolated(load: Load, rows: int, idle: Taken, full: Taken, each: float) -> None:
    """Print what more devices would take: all of it grows as their number does, but for what an empty centre takes."""
    cores = (full.cores - idle.cores) / load.devices
    grown = (full.bytes - idle.bytes) / load.devices
    print(
        f"formula: samples/s = devices x {rows} / {load.interval_s}; cores = {idle.cores:.3f} + devices x {cores:.2e}; "
        f"memory = {idle.bytes / 1e6:.0f} MB + devices x {grown / 1e3:.0f} kB; "
        f"disk a day = samples/s x 86400 x {each:.2f} bytes"
    )
    for devices in EXTRAPOLATED:
        rate = devices * rows / load.interval_s
        print(
            f"  {devices} devices: {devices * rows} series, {rate:.0f} samples/s, {idle.cores + devices * cores:.2f} cores, "
            f"{(idle.bytes + devices * grown) / 1e9:.1f} GB of memory, {rate * 86_400 * each / 1e9:.1f} GB a day"
        )


def measured(run: Capacity) -> bool:
    """Run it once; return whether no sample is missing and the dashboard is fast."""
    idle = Taken(*run.idle())
    run.fill()
    live = run.live()
    whole = kept_up(run, live)
    peer = run.engines.get("prometheus")
    print(
        "CPU of one core, live: "
        + ", ".join(f"{name} {100 * share:.1f} %" for name, share in live.cpu.items())
    )
    slowest = asked(run.victoria, run)
    cores = live.cpu["victoria-metrics"] + live.cpu["vmalert"]
    full = Taken(cores, memory_bytes(run.victoria) + memory_bytes(run.vmalert))
    each = kept("victoria-metrics", answers.victoria_disk(run.victoria))
    print(f"memory of VictoriaMetrics and vmalert: {full.bytes / 1e6:.0f} MB")
    if peer is not None:
        theirs, memory = asked(peer, run), memory_bytes(peer)
        print(f"memory of Prometheus: {memory / 1e6:.0f} MB")
        other = kept("prometheus", answers.prometheus_disk(peer, run))
        print(
            f"ratios to Prometheus, rules included: CPU {full.cores / live.cpu['prometheus']:.2f}, slowest query "
            f"{slowest / theirs:.2f}, memory {full.bytes / memory:.2f}, bytes a sample {each / other:.2f}"
        )
    if run.load.devices >= ENOUGH:
        extrapolated(run.load, run.rows, idle, full, each)
    print(f"goals: no sample missing: {whole}; slowest query {slowest:.2f} s, at most {GOAL_QUERY_S:g} s")
    return whole and slowest <= GOAL_QUERY_S


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--history", type=int, default=10, help="minutes")
    parser.add_argument("--no-peer", action="store_true", help="without Prometheus")
    given = parser.parse_args()
    load = Load(given.devices, given.minutes, given.history, peer=not given.no_peer)
    print(
        f"{load.devices} devices, {load.minutes:g} live minutes after {load.history} filled in; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} before"
    )
    with tempfile.TemporaryDirectory() as directory, ExitStack() as ending:
        return 0 if measured(Capacity(load, Place(Path(directory), ending), print)) else 1


sys.exit(main())
