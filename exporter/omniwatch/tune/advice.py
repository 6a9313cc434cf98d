"""Recommend limits from what was measured: no quota and a weight, or, if a cap is required, one that is wide enough."""

from __future__ import annotations

import math
from typing import NamedTuple

from omniwatch.tune.model import Limit, blackout_s, quota_for, response_s, will_drift
from omniwatch.tune.sample import WINDOW_S, Watched, percentile

WEIGHT = 900
HEADROOM = 1.5
"""A quota's room above the 99th percentile of use."""
STOP_S = 0.02
"""The longest stop that a capped server may suffer: a quarter of a frame."""
PERIOD_S = 0.1
SHORT_PERIOD_S = 0.02
"""Where the kernel knows no burst (before 5.14): no stop can then be longer than this."""


class Outcome(NamedTuple):
    """What a limit does to frames: seconds."""

    limit: Limit
    blackout_s: float
    response_s: float
    drifts: bool


class Advice(NamedTuple):
    """The present, what is recommended, and why in one line. `recommended` is None when nothing is to be changed."""

    frame_work_s: float
    threads: int
    now: Outcome
    recommended: Outcome | None
    weight: int
    reason: str


def advise(
    seen: Watched,
    limit: Limit,
    *,
    cpus: int,
    frame_s: float,
    has_burst: bool,
    weight: float | None = None,
    cap: bool = False,
    cap_cores: float | None = None,
) -> Advice:
    """Recommend a limit. `cap` demands one, `cap_cores` a certain one; without either, there is to be no quota.

    A limit or a weight that is there is never lowered, unless `cap_cores` says so.
    """
    threads = seen.runnable(cpus)
    share = max(WEIGHT, round(weight or 0))
    work = seen.cores * frame_s
    now = _outcome(limit, threads, work, frame_s)
    if cap_cores is not None:
        chosen = _given(cap_cores, has_burst)
        reason = f"{cap_cores:g} CPUs were asked for"
    elif cap:
        enough, given = (
            _smallest(seen, threads, cpus, has_burst),
            limit.cores if limit.quota_s is not None else 0,
        )
        if enough <= given and now.blackout_s <= STOP_S:
            return Advice(work, threads, now, None, share, "the quota in force is enough: it is not lowered")
        chosen = _given(max(enough, given), has_burst)
        use = "as many CPUs as now" if enough <= given else f"{HEADROOM} times the 99th percentile of use"
        reason = f"{use}, and no stop over {STOP_S * 1000:.0f} ms"
    else:
        if limit.quota_s is None and weight is not None and weight >= WEIGHT:
            return Advice(work, threads, now, None, share, "no quota and a high weight: nothing to mend")
        chosen = Limit(None, limit.period_s)
        reason = "a weight gives the server its CPUs when others want them, and stops nobody when they do not"
    return Advice(work, threads, now, _outcome(chosen, threads, work, frame_s), share, reason)


def _outcome(limit: Limit, threads: int, work_s: float, frame_s: float) -> Outcome:
    return Outcome(
        limit,
        blackout_s(limit, threads),
        response_s(limit, threads, work_s),
        will_drift(limit, work_s, frame_s),
    )


def _given(cores: float, has_burst: bool) -> Limit:
    period = PERIOD_S if has_burst else SHORT_PERIOD_S
    quota = round(cores * period, 6)
    return Limit(quota, period, quota if has_burst else 0.0)


def _smallest(seen: Watched, threads: int, cpus: int, has_burst: bool) -> float:
    """The fewest CPUs, rounded up to a tenth of one, that hold both conditions."""
    period = PERIOD_S if has_burst else SHORT_PERIOD_S
    used = HEADROOM * percentile(seen.windows, 0.99) / WINDOW_S
    unstopped = quota_for(threads, period, STOP_S) / period
    return min(float(cpus), math.ceil(max(used, unstopped, 0.1) * 10 - 1e-9) / 10)
