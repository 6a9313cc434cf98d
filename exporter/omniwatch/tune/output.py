"""Write the result of `omniwatch tune`: lines, or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omniwatch.core.stream import LOSS_BASED
from omniwatch.tune.advice import Advice, Outcome
from omniwatch.tune.congestion import BBR, SEGMENT_BYTES, Kernel, most_bytes_s
from omniwatch.tune.model import Limit, sustained_s
from omniwatch.tune.sample import Watched, percentile

_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))


def as_json(unit: str, seen: Watched, advice: Advice, cpus: int) -> dict[str, Any]:
    """Return all of it as JSON-able values: seconds, CPUs, shares."""
    return {
        "unit": unit,
        "watched_s": round(seen.seconds, 3),
        "cpus": cpus,
        "cpu_cores": round(seen.cores, 4),
        "cpu_per_100ms_s": {name: round(percentile(seen.windows, q), 5) for name, q in _SHARES},
        "threads": advice.threads,
        "periods": seen.periods,
        "throttled_periods": seen.throttled_periods,
        "longest_stop_s": round(seen.longest_stop_s, 4),
        "cpu_per_frame_s": round(advice.frame_work_s, 5),
        "now": _outcome(advice.now),
        "recommended": advice.recommended and _outcome(advice.recommended) | {"weight": advice.weight},
        "reason": advice.reason,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    limit = outcome.limit
    return {
        "quota_cores": None if limit.quota_s is None else round(limit.cores, 4),
        "period_s": limit.period_s,
        "burst_s": limit.burst_s,
        "blackout_s": round(outcome.blackout_s, 5),
        "worst_response_s": round(outcome.response_s, 5),
        "will_drift": outcome.drifts,
    }


def as_text(unit: str, seen: Watched, advice: Advice, cpus: int, frame_s: float) -> Iterator[str]:
    """Say it line by line."""
    use = ", ".join(f"{name} {percentile(seen.windows, q) * 1000:.1f}" for name, q in _SHARES)
    yield f"{unit}, watched for {seen.seconds:.0f} s on {cpus} CPUs"
    yield f"  CPU used       {seen.cores:.2f} CPUs on average; ms in each 100 ms: {use}"
    yield f"  threads        {advice.threads} run at once"
    yield (
        f"  stopped        in {seen.throttled_share:.1%} of {seen.periods} quota periods;"
        f" longest {seen.longest_stop_s * 1000:.0f} ms"
    )
    sustained = sustained_s(advice.now.limit, frame_s)
    room = "no quota" if math.isinf(sustained) else f"the quota sustains {sustained * 1000:.1f} ms"
    yield (
        f"  work a frame   {advice.frame_work_s * 1000:.1f} ms of CPU in {frame_s * 1000:.0f} ms; {room}"
        + (": WILL DRIFT" if advice.now.drifts else "")
    )
    yield ""
    yield f"  {'':<13}{'limit':<44}{'stands still':>13}{'worst frame':>13}"
    yield _row("now", advice.now, None)
    if advice.recommended is None:
        yield f"nothing to change: {advice.reason}"
        return
    yield _row("recommended", advice.recommended, advice.weight)
    yield f"why: {advice.reason}"
    if advice.recommended.drifts:
        yield "WILL DRIFT even so: frames need more CPU than this quota sustains"


def _row(title: str, outcome: Outcome, weight: int | None) -> str:
    said = describe(outcome.limit) + ("" if weight is None else f", weight {weight}")
    return (
        f"  {title:<13}{said:<44}{outcome.blackout_s * 1000:>10.0f} ms{outcome.response_s * 1000:>10.0f} ms"
    )


def describe(limit: Limit) -> str:
    """A limit in words: "quota 0.50 CPUs in 100 ms"."""
    if limit.quota_s is None:
        return "no quota"
    burst = f", burst {limit.burst_s * 1000:.0f} ms" if limit.burst_s else ""
    return f"quota {limit.cores:.2f} CPUs in {limit.period_s * 1000:.0f} ms{burst}"


def congestion_as_json(kernel: Kernel, rtt_s: float, loss: float) -> dict[str, Any]:
    """Return what new connections get and what that is worth as JSON-able values: seconds, bytes, shares."""
    return kernel._asdict() | {
        "is_loss_based": kernel.congestion_control in LOSS_BASED,
        "path": {"rtt_s": rtt_s, "loss": loss},
        "loss_based_most_bytes_s": round(most_bytes_s(loss, rtt_s)),
    }


def congestion_as_text(kernel: Kernel, rtt_s: float, loss: float) -> Iterator[str]:
    """Say it line by line."""
    runs, most = kernel.congestion_control, most_bytes_s(loss, rtt_s) / 1000
    yield f"new connections of this machine, Linux {kernel.release}"
    yield f"  now            {runs}{', which sends less after each lost packet' if runs in LOSS_BASED else ''}"
    yield f"  bbr            {kernel.bbr or f'not in this kernel, nor in /lib/modules/{kernel.release}'}"
    yield f"path of {rtt_s * 1000:g} ms round trip that loses {loss * 100:.4g} % of its packets"
    yield f"  loss-based     {most:.3g} kB/s at most: 1.22 x {SEGMENT_BYTES} bytes / (round trip x sqrt(loss))"
    yield "  bbr            what the path has room for: such loss does not slow it down"
    yield "  speech needs   48 kB/s as PCM16 in frames, 64 kB/s in base64, 3 kB/s as Opus"
    if runs == BBR:
        yield "nothing to change: bbr runs"
    elif not kernel.bbr:
        yield "nothing to set: BBR needs another kernel; speech in Opus needs a twentieth of the bytes"
    else:
        yield "recommended: bbr"
        yield "note: all new connections of this machine get it, not the model server's alone; open ones keep theirs"
        yield "note: a container or pod with a network of its own has a value of its own"
