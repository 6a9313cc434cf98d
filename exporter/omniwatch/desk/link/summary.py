"""Write the table of `omniwatch bench resume`, grouped by scenario, as Markdown and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from omniwatch.desk.link.measure import Run

COLUMNS = {
    "scenario": "scenario",
    "seeds": "seeds",
    "minutes": "minutes",
    "resumptions": "resumptions",
    "success": "success",
    "replay": "past the window",
    "extra_mean_ms": "extra delay mean (ms)",
    "extra_p99_ms": "p99 (ms)",
    "answer_p50_ms": "first frame p50 (ms)",
    "answer_p99_ms": "p99 (ms)",
    "first_p50_ms": "first speech p50 (ms)",
    "first_p90_ms": "p90 (ms)",
    "underrun_s": "underrun a turn (s)",
    "duplicates": "duplicates",
    "never_heard": "frames never heard",
    "drift_p99_ms": "drift after p99 (ms)",
}


SPOKEN = {"pcm16": "PCM16 of 24 kHz, 48 kB/s", "opus": "as many bytes as Opus takes, 3 kB/s"}


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that `share` of all are not above (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Put runs of one scenario together. A return that needed no server, the old connection alive again, is no resumption."""
    returns = [found for run in runs for found in run.returns]
    resumed = [found for found in returns if found.result]
    replays = [found for found in resumed if found.result == "replay"]
    failed = sum(count for run in runs for count in run.failed.values())
    extra = [found.extra_ms for found in resumed]
    answer = [found.answer_ms for found in resumed]
    drift = [abs(found.drift_ms) for found in resumed if found.drift_ms is not None]
    reasons: dict[str, int] = {}
    for run in runs:
        for reason, count in run.failed.items():
            reasons[reason] = reasons.get(reason, 0) + count
    frames = sum(run.frames for run in runs)
    first = [ms for run in runs for ms in run.first_ms]
    server = [ms for run in runs for ms in run.server_extra_ms]
    return {
        "scenario": runs[0].scenario,
        "seeds": [run.seed for run in runs],
        "minutes": round(sum(run.minutes for run in runs), 1),
        "turns": sum(run.turns for run in runs),
        "turns_sample_for_sample": sum(run.whole for run in runs),
        "resumptions": len(resumed) + failed,
        "failed": reasons,
        "success": len(resumed) / (len(resumed) + failed) if resumed or failed else None,
        "replay": len(replays) / len(resumed) if resumed else None,
        "replay_outage_min_ms": round(min((found.outage_ms for found in replays), default=0.0), 1),
        "came_back_by_itself": len(returns) - len(resumed),
        "outage_p50_ms": round(percentile((found.outage_ms for found in resumed), 0.5), 1),
        "extra_mean_ms": round(sum(extra) / len(extra), 1) if extra else None,
        "extra_p99_ms": round(percentile(extra, 0.99), 1),
        "extra_mean_ms_by_the_server": round(sum(server) / len(server), 1) if server else None,
        "answer_p50_ms": round(percentile(answer, 0.5), 1),
        "answer_p99_ms": round(percentile(answer, 0.99), 1),
        "first_p50_ms": round(percentile(first, 0.5), 1),
        "first_p90_ms": round(percentile(first, 0.9), 1),
        "underrun_s": round(sum(run.underrun_s for run in runs) / max(1, sum(run.turns for run in runs)), 2),
        "frames": frames,
        "duplicates": sum(run.duplicates for run in runs),
        "never_heard": sum(run.lost for run in runs),
        "rtx": sum(run.rtx for run in runs),
        "drift_p99_ms": round(percentile(drift, 0.99), 1),
        "realigned_ms": round(sum(run.realigned_ms for run in runs)),
    }


def markdown(
    rows: Sequence[dict[str, Any]], *, speed: float, took_s: float, congestion: str, codec: str
) -> str:
    """Return the table and what has to be said with it."""
    lines = [
        "| " + " | ".join(COLUMNS.values()) + " |",
        "|" + "|".join("---" if key == "scenario" else "--:" for key in COLUMNS) + "|",
        *("| " + " | ".join(_cell(key, row[key]) for key in COLUMNS) + " |" for row in rows),
        "",
        f"Virtual time: {sum(row['minutes'] for row in rows):.0f} minutes of network in {took_s:.0f} s, with the client, "
        "the middleware and the relay as they run in production, over memory instead of sockets.",
        "",
        f"Congestion control: {congestion}. Speech: {SPOKEN[codec]}.",
        "",
        "First speech is from a turn's question, its connection's handshake included, less the server's own time.",
        "",
        "The first frame is counted from when the client sets out to come back, there being a network or not.",
        "",
        f"75 frames are 6 s of speech. Made at {speed:g}x they cover {6 / speed:.1f} s; a client that was away for longer is "
        "past the window, and is sent the rest of its turn from the server's copy. The time it took to notice counts, and "
        "so does what was still under way when the connection died.",
    ]
    for row in rows:
        if row["replay"]:
            lines.append(
                f"\n{row['scenario']}: {100 * row['replay']:.1f} % were past the window; the shortest of these outages "
                f"was {row['replay_outage_min_ms'] / 1000:.1f} s."
            )
        if row["failed"]:
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(row["failed"].items()))
            lines.append(f"\n{row['scenario']}: turns that could not be taken up again: {why}.")
    return "\n".join(lines) + "\n"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in ("success", "replay"):
        return f"{100 * value:.2f} %" if key == "success" else f"{100 * value:.1f} %"
    if key == "seeds":
        return str(len(value))
    if key == "minutes":
        return f"{value:.0f}"
    return (
        f"{value:,.1f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
