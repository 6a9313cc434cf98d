"""Compute what a CFS quota does to a server that owes one codec frame every 80 ms: formulas, in seconds.

A quota of Q seconds of CPU in each period of P is a pool for all threads of a group. T threads that run at once empty it
after Q / T, and then nothing of the group runs until the period ends. (Kernel: sched-bwc.rst.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

DRIFT_SHARE = 0.9
"""A server that needs more than this share of what its quota sustains has no room to catch up in."""


class Limit(NamedTuple):
    """A quota of CPU time for each period, None for none; `burst_s` is unused quota that may be saved."""

    quota_s: float | None
    period_s: float = 0.1
    burst_s: float = 0.0

    @property
    def cores(self) -> float:
        """How many CPUs it amounts to: infinite without a quota."""
        return math.inf if self.quota_s is None else self.quota_s / self.period_s


def blackout_s(limit: Limit, threads: float) -> float:
    """How long the group stands still once its quota is used: P - (Q + burst) / T, at least 0."""
    if limit.quota_s is None:
        return 0.0
    return max(0.0, limit.period_s - (limit.quota_s + limit.burst_s) / max(1.0, threads))


def response_s(limit: Limit, threads: float, work_s: float) -> float:
    """How long the worst frame takes that needs `work_s` of CPU and comes just as the quota is used up.

    B + (ceil(C / Q) - 1) P + (C - (ceil(C / Q) - 1) Q) / T; without a blackout it is C / T.
    """
    threads = max(1.0, threads)
    stopped = blackout_s(limit, threads)
    if limit.quota_s is None or not stopped:
        return work_s / threads
    further = max(0, math.ceil(work_s / limit.quota_s) - 1)
    return stopped + further * limit.period_s + (work_s - further * limit.quota_s) / threads


def sustained_s(limit: Limit, frame_s: float) -> float:
    """CPU time a frame may need in the long run: infinite without a quota. Burst does not add to it."""
    return frame_s * limit.cores


def will_drift(limit: Limit, work_s: float, frame_s: float) -> bool:
    """Whether frames need so much of what the quota sustains that they fall behind sooner or later."""
    return work_s > DRIFT_SHARE * sustained_s(limit, frame_s)


def lateness_growth(limit: Limit, work_s: float, frame_s: float) -> float:
    """Seconds of lateness gained a second, when frames need more than the quota sustains: 0 when they do not."""
    return max(0.0, work_s / sustained_s(limit, frame_s) - 1)


def quota_for(threads: float, period_s: float, stop_s: float) -> float:
    """The quota with which T threads are never stopped for longer than `stop_s`: T (P - J)."""
    return max(1.0, threads) * max(0.0, period_s - stop_s)
