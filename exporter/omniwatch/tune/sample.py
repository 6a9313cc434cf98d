"""Sample a running server's cgroup: CPU used, threads that want to run, time throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from omniwatch.host.cgroup import Group, Usage
from omniwatch.system.errors import UserError
from omniwatch.system.sysfs import names, read_text
from omniwatch.tune.model import Limit

TICK_S = 0.005
THREADS_EVERY = 40
"""Threads are counted at every so many ticks: each costs a file."""
WINDOW_S = 0.1


class WatchError(UserError):
    """The server cannot be watched."""


@dataclass
class Watched:
    """What was seen. Times in seconds; `windows` is the CPU time used in each 100 ms, `threads` how many ran or wanted to."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    periods: int = 0
    throttled_periods: int = 0
    longest_stop_s: float = 0.0
    windows: list[float] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    @property
    def cores(self) -> float:
        """CPUs used on average."""
        return self.cpu_s / self.seconds if self.seconds else 0.0

    @property
    def throttled_share(self) -> float:
        """Share of quota periods in which the group was stopped."""
        return self.throttled_periods / self.periods if self.periods else 0.0

    def runnable(self, cpus: int) -> int:
        """Threads that run at once when there is work: the 95th percentile, at least one, at most the CPUs."""
        busy = [count for count in self.threads if count]
        return max(1, min(cpus, int(percentile(busy, 0.95)))) if busy else 1


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 for no values."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, int(len(ranked) * share + 0.999999) - 1))] if ranked else 0.0


def limit_of(group: Group) -> Limit | None:
    """What the kernel enforces; None where its cpu controller is not active for the group."""
    limits = group.limits()
    return limits and Limit(limits.quota_s, limits.period_s, limits.burst_s or 0.0)


def watch(
    group: Group,
    seconds: float,
    *,
    clock: Callable[[], float],
    wait: Callable[[float], object],
    progress: Callable[[float], object] = lambda done: None,
    proc: Path = Path("/proc"),
) -> Watched:
    """Watch for so long. `wait` sleeps, `progress` is called with the seconds watched. Raises WatchError."""
    seen = Watched()
    begun = last_t = window_t = clock()
    first = last = window = _usage(group)
    stops = _Stops(first, begun)
    tick = 0
    while (t := clock()) - begun < seconds or tick == 0:
        now = _usage(group)
        if _fell(last, now):
            raise WatchError(
                f"{group.name}: its counters began anew: it was started again while it was watched"
            )
        stops.see(now, last_t, t)
        if t - window_t >= WINDOW_S:
            # A late tick stretches a window: what was used is put down to 100 ms of it.
            seen.windows.append((_cpu(now) - _cpu(window)) * WINDOW_S / (t - window_t))
            window_t, window = t, now
            progress(t - begun)
        if tick % THREADS_EVERY == 0:
            seen.threads.append(runnable_threads(group.pids(), proc))
        last, last_t, tick = now, t, tick + 1
        wait(TICK_S - (clock() - begun) % TICK_S)
    seen.seconds, seen.cpu_s = last_t - begun, _cpu(last) - _cpu(first)
    seen.periods = (last.periods or 0) - (first.periods or 0)
    seen.throttled_periods = (last.throttled_periods or 0) - (first.throttled_periods or 0)
    seen.longest_stop_s = stops.longest_s
    return seen


class _Stops:
    """The longest time without any CPU use in which the kernel counted a throttled period."""

    def __init__(self, usage: Usage, t: float) -> None:
        self.longest_s = 0.0
        self._grown = usage
        self._grown_t = t

    def see(self, usage: Usage, last_t: float, t: float) -> None:
        """Take one more reading, made at `t` after the one at `last_t`."""
        if usage.cpu_s == self._grown.cpu_s:
            return
        if (usage.throttled_periods or 0) > (self._grown.throttled_periods or 0) and last_t > self._grown_t:
            # It surely stood still from the reading that first had the old value to the one that last had it, and on
            # average half a tick before and after. When this process itself was not let run, nothing is known.
            self.longest_s = max(self.longest_s, last_t - self._grown_t + TICK_S)
        self._grown, self._grown_t = usage, t


def runnable_threads(pids: Iterable[int], proc: Path = Path("/proc")) -> int:
    """Count the threads of these processes that run or want to."""
    count = 0
    for pid in pids:
        for task in names(proc / f"{pid}/task"):
            # The name, in parentheses, may hold anything; the state follows it.
            after = (read_text(proc / f"{pid}/task/{task}/stat") or "").rpartition(") ")[2]
            count += after.startswith("R")
    return count


def _usage(group: Group) -> Usage:
    usage = group.usage()
    if usage.cpu_s is None:
        raise WatchError(f"{group.name}: its CPU time cannot be read; has the server ended?")
    return usage


def _fell(last: Usage, now: Usage) -> bool:
    """Whether a counter went back: the group is another one of the same name."""
    return any((new or 0) < (old or 0) for old, new in zip(last, now, strict=True))


def _cpu(usage: Usage) -> float:
    return usage.cpu_s or 0.0
