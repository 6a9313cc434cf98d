"""Watch the servers' memory and the device's energy while they are asked, through what the kernel says.

*Held* is the memory that a server has taken. *Needed* is the same without the part of its KV cache that was never used.
vLLM takes its share of the memory when it starts, so the two differ.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.core import Metric

from omniwatch.desk.chain import CHAINS, Chain, ChainError, DeviceUse, Level, Memory
from omniwatch.host import cgroup, jetson
from omniwatch.settings import Server, Settings
from omniwatch.system.sysfs import names, read_int, read_text, to_int

PERIOD_S = 0.2
"""Seconds between two samples."""
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True)
class Watched:
    """What `--watch CHAIN=WHAT` names: a process and its children, a unit or a container."""

    chain: Chain
    what: str


def parse(text: str) -> Watched:
    """Read CHAIN=UNIT|PID|CONTAINER. Raises ChainError."""
    chain, equals, what = text.partition("=")
    for known in CHAINS:
        if equals and what and chain == known:
            return Watched(known, what)
    raise ChainError(f'--watch: expected native= or cascade= with a unit, a PID or a container, got "{text}"')


class Reading(Protocol):
    """Memory of one watched part."""

    how: str

    def now_bytes(self) -> int | None:
        """Return what is held at this moment."""

    def reset(self) -> None:
        """Begin the kernel's own record of the peak anew, where it can be."""

    def peak_bytes(self) -> int | None:
        """Return the kernel's own record since `reset`; None where it keeps none."""


class Tree:
    """A process and all that descend from it."""

    def __init__(self, pid: int, root: Path) -> None:
        self._pid = pid
        self._root = root
        self._reset: set[int] = set()
        self.how = "VmHWM, processes added up"

    def _pids(self) -> Iterator[int]:
        children: dict[int, list[int]] = {}
        for name in names(self._root / "proc", only_directories=True):
            if name.isdigit() and (stat := read_text(self._root / f"proc/{name}/stat")):
                parent = to_int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent or 0, []).append(int(name))
        waiting = [self._pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            waiting += children.get(pid, [])

    def _sum(self, field_name: str) -> int | None:
        total, found = 0, False
        for pid in self._pids():
            for line in (read_text(self._root / f"proc/{pid}/status") or "").splitlines():
                if line.startswith(f"{field_name}:") and (kilo := to_int(line.split()[1])) is not None:
                    total, found = total + kilo * 1024, True
        return total if found else None

    def now_bytes(self) -> int | None:
        """Return the resident memory of all, shared pages counted in each."""
        return self._sum("VmRSS")

    def reset(self) -> None:
        """Reset VmHWM, which needs the same user or root."""
        try:
            for pid in self._pids():
                (self._root / f"proc/{pid}/clear_refs").write_text("5")
        except OSError:
            self.how = "VmRSS at 5 Hz, processes added up (no right to reset VmHWM)"

    def peak_bytes(self) -> int | None:
        """Return the sum of each one's own peak: not less than what all held at once."""
        return self._sum("VmHWM") if self.how.startswith("VmHWM") else None


class Group:
    """A unit's or a container's cgroup."""

    def __init__(self, group: cgroup.Group, root: Path) -> None:
        place = group.tasks
        if group.version == 1:
            trees = root / "sys/fs/cgroup"
            own = Path(group.tasks).relative_to(trees).parts[1:]
            place = str(trees.joinpath("memory", *own))
        self._version, self._place = group.version, place
        self._resets = False
        self.how = "cgroup memory at 5 Hz"

    def _file(self, v1: str, v2: str) -> str:
        return f"{self._place}/{v1 if self._version == 1 else v2}"

    def now_bytes(self) -> int | None:
        """Return what is charged to the group, but for caches of files."""
        held = read_int(self._file("memory.usage_in_bytes", "memory.current"))
        stat = read_text(f"{self._place}/memory.stat") or ""
        # Files that the kernel could drop at once are charged to the group, too, and are not what a server holds.
        wanted = "total_inactive_file" if self._version == 1 else "inactive_file"
        files = next((to_int(x.split()[1]) for x in stat.splitlines() if x.split()[:1] == [wanted]), None)
        return None if held is None else max(0, held - (files or 0))

    def reset(self) -> None:
        """The kernel's peak counts caches of files too: the samples are used."""

    def peak_bytes(self) -> int | None:
        """Return None: see `reset`."""
        return None


def find(watched: Watched, root: Path = Path("/")) -> Reading:
    """Find what is to be watched. Raises ChainError where it is not there."""
    what = watched.what
    if what.isdigit():
        if not (root / f"proc/{what}/status").exists():
            raise ChainError(f"--watch {watched.chain}={what}: no such process")
        return Tree(int(what), root)
    unit = what
    if _CONTAINER_ID.fullmatch(what):
        base = root / "sys/fs/cgroup"
        found = next((p.name for p in base.glob(f"*/*{what}*") if p.is_dir()), None) or next(
            (p.name for p in base.glob(f"*/*/*{what}*") if p.is_dir()), what
        )
        unit = found
    groups = cgroup.locate(Server(unit=unit, container_id_file="/nonexistent"), root)
    if not groups:
        raise ChainError(
            f"--watch {watched.chain}={what}: no such unit, container or process on this machine"
        )
    return Group(groups[0], root)


@dataclass
class _Part:
    watched: Watched
    reading: Reading
    before: int | None = None
    most: int | None = None


@dataclass
class _Sample:
    t: float
    watts: dict[str, float]
    gpu: int | None


@dataclass
class Watch:
    """Everything that is watched, sampled by a thread of its own between `with` and its end."""

    parts: list[_Part]
    device: Callable[[], Iterable[Metric]]
    gpu: Callable[[], int | None]
    clock: Callable[[], float] = time.monotonic
    period_s: float = PERIOD_S
    _samples: list[_Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        for part in self.parts:
            part.reading.reset()
            part.before = part.reading.now_bytes()
        self.look()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.look()

    def _run(self) -> None:
        while not self._stop.wait(self.period_s):
            self.look()

    def look(self) -> None:
        """Read everything once."""
        for part in self.parts:
            now = part.reading.now_bytes()
            part.most = max(filter(None, (part.most, now)), default=None)
        watts: dict[str, float] = {}
        with contextlib.suppress(OSError):
            for family in self.device():
                if family.name == "jetson_rail_power_watts":
                    watts = {sample.labels["rail"]: sample.value for sample in family.samples}
        self._samples.append(_Sample(self.clock(), watts, self.gpu()))

    def memory(self, unused_kv: Callable[[Chain], int | None]) -> list[Memory]:
        """Return each part's memory. `unused_kv` says how much of a chain's KV cache was never used, None if unknown."""
        return [self._memory(part, unused_kv) for part in self.parts]

    def _memory(self, part: _Part, unused_kv: Callable[[Chain], int | None]) -> Memory:
        kernels = part.reading.peak_bytes()
        held = max(filter(None, (kernels, part.most)), default=None)
        unused = unused_kv(part.watched.chain)
        alone = sum(other.watched.chain == part.watched.chain for other in self.parts) == 1
        needed = note = None
        if held is None:
            note = "nothing could be read"
        elif unused is None:
            note = "needed: no server of the chain states the size of its KV cache"
        elif not alone:
            note = "needed: several parts are watched, and which one holds the KV cache is not known"
        else:
            needed = max(0, held - unused)
        return Memory(
            chain=part.watched.chain,
            watched=part.watched.what,
            before_bytes=part.before,
            held_bytes=held,
            needed_bytes=needed,
            how=part.reading.how,
            note=note,
        )

    def devices(self, levels: Iterable[Level], turns: dict[Chain, int], began_t: float) -> list[DeviceUse]:
        """Return the device's energy and GPU memory over each chain's blocks; none where it says nothing of itself."""
        blocks = list(levels)
        found = []
        for chain in CHAINS:
            spans = [(began_t + b.start_s, began_t + b.end_s) for b in blocks if b.chain == chain]
            gpu = [s.gpu for s in self._samples if s.gpu is not None and any(a <= s.t <= b for a, b in spans)]
            joules: dict[str, float] = {}
            for start, end in spans:
                for rail, value in energy(((s.t, s.watts) for s in self._samples), start, end).items():
                    joules[rail] = joules.get(rail, 0.0) + value
            if spans and (gpu or joules):
                found.append(
                    DeviceUse(
                        chain=chain,
                        gpu_before_bytes=self._samples[0].gpu,
                        gpu_held_bytes=max(gpu, default=None),
                        rails_joules={rail: round(value, 3) for rail, value in joules.items()},
                        turns=turns.get(chain, 0),
                    )
                )
        return found


def energy(samples: Iterable[tuple[float, dict[str, float]]], start: float, end: float) -> dict[str, float]:
    """Integrate each rail's power from start to end by trapezoids, joules; at the ends the line between samples is cut."""
    found: dict[str, float] = {}
    before: tuple[float, dict[str, float]] | None = None
    for t, watts in samples:
        if before is not None and t > start and before[0] < end:
            since, earlier = before
            a, b = max(since, start), min(t, end)
            for rail in earlier.keys() & watts.keys():
                slope = (watts[rail] - earlier[rail]) / (t - since) if t > since else 0.0
                middle = earlier[rail] + slope * ((a + b) / 2 - since)
                found[rail] = found.get(rail, 0.0) + middle * (b - a)
        before = (t, watts)
    return found


def open_watch(wanted: Iterable[Watched], root: Path = Path("/")) -> Watch:
    """Find everything that is to be watched. Raises ChainError."""
    parts = [_Part(one, find(one, root)) for one in wanted]
    return Watch(parts, jetson.Reader(Settings(), root).collect, _gpu(root))


def _gpu(root: Path) -> Callable[[], int | None]:
    def nvmap() -> int | None:
        for line in (read_text(root / "proc/meminfo") or "").splitlines():
            if line.startswith("NvMapMemUsed:"):
                kilo = to_int(line.split()[1])
                return None if kilo is None else kilo * 1024
        return None

    if nvmap() is not None:
        return nvmap
    nvml = _nvml()
    return nvml if nvml is not None else (lambda: None)


def _nvml() -> Callable[[], int | None] | None:
    """The memory in use on all GPUs, where nvidia-ml-py and a driver are there."""
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]  # optional, and without types
    except ImportError:
        return None
    library: Any = pynvml
    try:
        library.nvmlInit()
        cards = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
    except library.NVMLError:
        return None
    return lambda: sum(int(library.nvmlDeviceGetMemoryInfo(card).used) for card in cards)
