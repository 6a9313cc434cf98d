"""CPU time, limits and throttling of the model server, from the kernel's cgroup files, version 1 and 2.

A quota stops every thread of a group until its period ends, and a parent's quota stops its children too: so each
parent that has one is read beside the group itself. The label `unit` is the group's own name; a container's group goes
by the name of the unit that starts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from omniwatch.settings import Server, Settings
from omniwatch.system.sysfs import names, pairs, read_int, read_text, to_int

_SHARES_OF_WEIGHT_100 = 1024
_CONTAINER_GROUPS = (
    "system.slice/docker-{id}.scope",
    "docker/{id}",
    "machine.slice/libpod-{id}.scope",
    "system.slice/libpod-{id}.scope",
)


class Usage(NamedTuple):
    """What a group has used since it was made: seconds and counts, None where its kernel does not say."""

    cpu_s: float | None
    periods: int | None
    throttled_periods: int | None
    throttled_s: float | None


class Limits(NamedTuple):
    """What the kernel enforces: `quota_s` of CPU time per `period_s` (None: no quota), weight on version 2's scale."""

    quota_s: float | None
    period_s: float
    burst_s: float | None
    weight: float | None

    @property
    def cores(self) -> float | None:
        """How many CPUs the quota amounts to."""
        return None if self.quota_s is None else self.quota_s / self.period_s


@dataclass(frozen=True)
class Group:
    """One cgroup. `cpu` is its directory in the cpu controller's tree, None where that tree lacks it; `account` is where
    CPU time is accounted, `tasks` where its processes are listed.
    """

    name: str
    version: int
    cpu: str | None
    account: str | None
    tasks: str

    def running(self) -> bool:
        """Whether any process is in the group or below it."""
        events = pairs(read_text(f"{self.tasks}/cgroup.events"))
        if "populated" in events:
            return bool(events["populated"])
        return any(True for _ in self.pids())

    def pids(self) -> Iterator[int]:
        """Every process of the group and of the groups below it."""
        yield from _pids_below(self.tasks)

    def usage(self) -> Usage:
        """Read the counters. `cpu.stat` counts microseconds in version 2; nanoseconds in version 1."""
        stat = pairs(read_text(f"{self.cpu}/cpu.stat")) if self.cpu else {}
        if self.version == 2:
            spent, stopped = stat.get("usage_usec"), stat.get("throttled_usec")
            cpu_s = None if spent is None else spent / 1e6
            throttled_s = None if stopped is None else stopped / 1e6
        else:
            spent, stopped = read_int(f"{self.account}/cpuacct.usage"), stat.get("throttled_time")
            if spent is None and self.account:
                # A unit without a group in the cpuacct tree still has one in the hybrid layout's version 2 tree.
                micro = pairs(read_text(f"{self.account}/cpu.stat")).get("usage_usec")
                spent = None if micro is None else micro * 1000
            cpu_s = None if spent is None else spent / 1e9
            throttled_s = None if stopped is None else stopped / 1e9
        return Usage(cpu_s, stat.get("nr_periods"), stat.get("nr_throttled"), throttled_s)

    def limits(self) -> Limits | None:
        """Read what is enforced; None where the kernel's cpu controller is not active for this group."""
        if self.cpu is None:
            return None
        return self._limits_v2(self.cpu) if self.version == 2 else self._limits_v1(self.cpu)

    @staticmethod
    def _limits_v2(cpu: str) -> Limits | None:
        quota, _, period = (read_text(f"{cpu}/cpu.max") or "").partition(" ")
        period_us = to_int(period)
        if not period_us:
            return None
        burst, weight = read_int(f"{cpu}/cpu.max.burst"), read_int(f"{cpu}/cpu.weight")
        return _limits(to_int(quota), period_us, burst, None if weight is None else float(weight))

    @staticmethod
    def _limits_v1(cpu: str) -> Limits | None:
        quota, period_us = read_int(f"{cpu}/cpu.cfs_quota_us"), read_int(f"{cpu}/cpu.cfs_period_us")
        if quota is None or not period_us:
            return None
        burst, shares = read_int(f"{cpu}/cpu.cfs_burst_us"), read_int(f"{cpu}/cpu.shares")
        weight = None if shares is None else shares * 100 / _SHARES_OF_WEIGHT_100
        return _limits(quota if quota > 0 else None, period_us, burst, weight)


def _limits(quota_us: int | None, period_us: int, burst_us: int | None, weight: float | None) -> Limits:
    return Limits(
        None if quota_us is None else quota_us / 1e6,
        period_us / 1e6,
        None if burst_us is None else burst_us / 1e6,
        weight,
    )


def _pids_below(directory: str) -> Iterator[int]:
    for line in (read_text(f"{directory}/cgroup.procs") or "").split():
        yield int(line)
    for name in names(directory, only_directories=True):
        yield from _pids_below(f"{directory}/{name}")


@dataclass(frozen=True)
class _Trees:
    version: int
    cpu: str | None
    account: tuple[str, ...]
    tasks: tuple[str, ...]


def _trees(root: Path) -> _Trees | None:
    base = root / "sys/fs/cgroup"
    if (base / "cgroup.controllers").exists():
        return _Trees(2, str(base), (str(base),), (str(base),))
    mounted = {name: str(base / name) for name in names(base, only_directories=True)}
    cpu = mounted.get("cpu,cpuacct") or mounted.get("cpu")
    account = tuple(mounted[name] for name in ("cpu,cpuacct", "cpuacct", "unified") if name in mounted)
    # A unit without CPU settings has no group of its own in version 1's cpu tree: systemd's own tree still has it.
    tasks = tuple(tree for tree in (cpu, mounted.get("systemd"), mounted.get("unified")) if tree)
    return _Trees(1, cpu, account, tasks) if tasks else None


def locate(server: Server, root: Path = Path("/")) -> list[Group]:
    """Find the server's group, and after it its parents from the nearest up; none where the server is not there."""
    trees = _trees(root)
    if trees is None:
        return []
    container = read_text(root / server.container_id_file.lstrip("/"))
    places = [place.format(id=container) for place in _CONTAINER_GROUPS] if container else []
    for place in (*places, f"system.slice/{server.unit}", server.unit):
        if found := _group(trees, place, server.unit):
            return [found, *_parents(trees, place)]
    for place in (f"{below}/{server.unit}" for tree in trees.tasks for below in _slices(tree)):
        if found := _group(trees, place, server.unit):
            return [found, *_parents(trees, place)]
    return []


def tightest(groups: list[Group]) -> Group:
    """Of a group and the slices it is in the one with the smallest quota; the group itself, where none has a smaller."""

    def cores(group: Group) -> float:
        limits = group.limits()
        return math.inf if limits is None or limits.cores is None else limits.cores

    return min([groups[0], *(group for group in groups[1:] if group.name.endswith(".slice"))], key=cores)


def _slices(tree: str, below: str = "") -> Iterator[str]:
    """Every slice of a tree: ai-models.slice is in ai.slice, and the instances of vllm@.service in system-vllm.slice."""
    for name in names(f"{tree}/{below}", only_directories=True):
        if name.endswith(".slice"):
            yield f"{below}{name}"
            yield from _slices(tree, f"{below}{name}/")


def _group(trees: _Trees, place: str, name: str) -> Group | None:
    def inside(tree: str | None) -> str | None:
        return f"{tree}/{place}" if tree and Path(tree, place).is_dir() else None

    tasks = next(filter(None, map(inside, trees.tasks)), None)
    if tasks is None:
        return None
    account = next(filter(None, map(inside, trees.account)), None)
    return Group(name, trees.version, inside(trees.cpu), account, tasks)


def _parents(trees: _Trees, place: str) -> Iterator[Group]:
    while "/" in place:
        place = place.rpartition("/")[0]
        if found := _group(trees, place, place.rpartition("/")[2]):
            yield found


class Reader:
    """The metric families `omni_server_*` of the server's group and of its parents that have a quota."""

    def __init__(self, settings: Settings, root: Path = Path("/")) -> None:
        self._server = settings.server
        self._root = root

    def collect(self) -> Iterable[Metric]:
        """Read the groups as they are now."""
        found = locate(self._server, self._root)
        unit = self._server.unit
        running = GaugeMetricFamily(
            "omni_server_running", "1 while the model server's cgroup holds a process.", labels=["unit"]
        )
        running.add_metric([unit], float(bool(found) and found[0].running()))
        yield running
        if not found:
            return
        own = found[0].limits()
        active = GaugeMetricFamily(
            "omni_server_cpu_controller",
            "1 where the kernel's cpu controller is active for the group: without it no CPU limit applies.",
            labels=["unit"],
        )
        active.add_metric([unit], float(own is not None))
        yield active
        limited = [(group, limits) for group in found[1:] if (limits := group.limits()) and limits.quota_s]
        yield from _used([(found[0], own), *limited])
        yield from _enforced([(found[0].name, own)] if own else [], [(g.name, x) for g, x in limited])


def _used(groups: list[tuple[Group, Limits | None]]) -> Iterator[Metric]:
    usages = [(group.name, group.usage()) for group, _ in groups]
    for field, name, help_text in (
        ("cpu_s", "omni_server_cpu_seconds", "CPU time used by the group."),
        ("periods", "omni_server_cpu_periods", "Quota periods in which the group had something to run."),
        (
            "throttled_periods",
            "omni_server_cpu_throttled_periods",
            "Quota periods in which the group was stopped for having used its quota.",
        ),
        (
            "throttled_s",
            "omni_server_cpu_throttled_seconds",
            "Time the group stood still for having used its quota, summed over CPUs.",
        ),
    ):
        family = CounterMetricFamily(name, help_text, labels=["unit"])
        for unit, usage in usages:
            value = getattr(usage, field)
            if value is not None:
                family.add_metric([unit], value)
        if family.samples:
            yield family


def _enforced(own: list[tuple[str, Limits]], parents: list[tuple[str, Limits]]) -> Iterator[Metric]:
    for field, name, help_text in (
        ("cores", "omni_server_cpu_quota_cores", "CPUs that the quota allows; absent where there is none."),
        ("period_s", "omni_server_cpu_period_seconds", "Length of the quota's period."),
        ("burst_s", "omni_server_cpu_burst_seconds", "Unused quota that may be saved for later periods."),
        (
            "weight",
            "omni_server_cpu_weight",
            "Share of busy CPUs against sibling groups; 100 is the default.",
        ),
    ):
        family = GaugeMetricFamily(name, help_text, labels=["unit"])
        for unit, limits in own + parents:
            value = getattr(limits, field)
            if value is not None:
                family.add_metric([unit], value)
        if family.samples:
            yield family
