"""Write a replay as text: a block for each stream, or the metrics at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from omniwatch.core.rule_states import Span, contract_rules, spans
from omniwatch.core.totals import Totals
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.replay import Replay, Track, clock


def exposition(replay: Replay, intake: Intake) -> str:
    """Return what the sidecar would show at the recording's last event, in Prometheus' text format."""

    class AtTheEnd(Collector):
        def collect(self) -> Iterable[Metric]:
            return collect(ScrapeSnapshot(replay.now, replay, [intake]))

    registry = CollectorRegistry()
    registry.register(AtTheEnd())
    return generate_latest(registry).decode()


def report(replay: Replay, intake: Intake) -> str:
    """Return the recording in a line, why turns were bad, and each stream as a table of what it went through."""
    lines = [_recording(replay, intake), *_bad_turns(replay)]
    for track in replay.tracks.values():
        lines += ["", *_stream(replay, track)]
    return "\n".join(lines) + "\n"


def no_event(file: str, refused: int) -> str:
    """Say that a recording holds no event, and how many lines of it were refused."""
    return f"{file}: no event in it" + (f", {plural(refused, 'line')} refused" if refused else "")


def plural(count: int, noun: str) -> str:
    """Return "1 line" or "2 lines"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _recording(replay: Replay, intake: Intake) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(replay.first_t))
    parts = [
        f"{plural(sum(intake.counts.events.values()), 'event')}, {clock(replay.now - replay.first_t)} from {began}",
        *(
            f"{plural(count, 'line')} refused: {reason}"
            for reason, count in intake.counts.invalid.items()
            if count
        ),
        *([f"{plural(intake.sequence.lost, 'event')} lost"] if intake.sequence.lost else []),
        *([f"{intake.sequence.repeated} repeated"] if intake.sequence.repeated else []),
    ]
    return "; ".join(parts)


def _bad_turns(replay: Replay) -> Iterator[str]:
    """Say how often each symptom had each cause, the leading one first, and in which share of the bad turns."""
    if replay.turns_bad:
        yield ""
        yield f"{replay.turns_bad} of {replay.totals.turns_judged} turns judged were bad"
    bad = replay.totals.turns_bad.items()
    pairs = Counter({(symptom, cause): n for symptom, causes in bad for cause, n in causes.items() if n})
    for (symptom, cause), n in pairs.most_common():
        yield _row(symptom, f"{cause:<12}{n:>5}{100 * n / replay.turns_bad:>5.0f} %")


def _stream(replay: Replay, track: Track) -> Iterator[str]:
    alerts, totals = replay.settings.alerts, track.totals
    began, ended = (clock(t - replay.first_t) for t in (track.first_t, track.last_t))
    yield f"{track.stream}  ({track.kind + ', ' if track.kind else ''}{began} to {ended})"
    ends = [f"{count} {outcome}" for outcome, count in totals.turns.items() if count]
    ends += [f"{track.open_turns} open"] if track.open_turns else []
    turns = sum(totals.turns.values()) + track.open_turns
    yield _row("turns", f"{turns}" + (f": {', '.join(ends)}" if ends else ""))
    yield _row(
        "speech",
        f"{totals.audio_seconds:.1f} s in {plural(totals.audio_frames, 'frame')}; "
        f"underrun {totals.audio_underrun_seconds:.1f} s",
    )
    yield _row(
        "frames",
        f"{totals.audio_frames_lost} lost ({plural(totals.audio_loss_runs, 'run')}), {totals.audio_frames_late} late, "
        f"{totals.audio_frames_duplicate} duplicate, {totals.audio_frames_corrupt} corrupt",
    )
    if track.drift_ms is None:
        yield _row("drift", "none")
    else:
        worst = f"; worst turn {track.worst_turn}: {track.worst_ms:.1f} ms" if track.worst_ms else ""
        yield _row(
            "drift",
            f"last {track.drift_ms:+.1f} ms, lowest {track.drift_low_ms:+.1f}, highest {track.drift_high_ms:+.1f}{worst}",
        )
    rtts = track.rtts_ms[track.vantage]
    yield _row(
        "round trip",
        f"median {median(rtts):.0f} ms, longest {max(rtts):.0f}, seen by the {track.vantage}"
        if rtts
        else "none",
    )
    if sum(totals.interruption_stale.counts):
        yield _row("interrupted", _interruptions(totals))
    for rule in contract_rules(alerts):
        found = spans(rule, track.samples, alerts.evaluation_interval_s)
        for number, words in enumerate(_verdict(found, replay.first_t)):
            yield _row("" if number else rule.name, words)


def _interruptions(totals: Totals) -> str:
    """Say how often the user spoke up, and on the average what that cost."""
    count = sum(totals.interruption_stale.counts)
    found = (
        (totals.interruption_stale, "stale"),
        (totals.interruption_unheard, "unheard"),
        (totals.interruption_answer, "until the next answer"),
    )
    means = [f"{one.sum / times:.2f} s {what}" for one, what in found if (times := sum(one.counts))]
    return f"{plural(count, 'time')}, on the average {', '.join(means)}"


def _row(name: str, words: str) -> str:
    return f"  {name:<12}{words}"


def _verdict(found: Sequence[Span], first_t: float) -> list[str]:
    """Say when a rule was firing, each time with the pending before it, and what came to nothing."""
    lines: list[str] = []
    in_vain: list[Span] = []
    pending: Span | None = None
    for span in found:
        led = pending if pending and span.state == "firing" and pending.end_t == span.start_t else None
        if pending and not led:
            in_vain.append(pending)
        pending = span if span.state == "pending" else None
        if span.state == "firing":
            since = f"pending {clock(led.start_t - first_t)}, " if led else ""
            until = f"to {clock(span.end_t - first_t)}" if span.over else "still at the end"
            length_s = span.end_t - span.start_t
            lines.append(f"{since}firing {clock(span.start_t - first_t)} {until} ({length_s:.0f} s)")
    in_vain += [pending] if pending else []
    if in_vain:
        length_s = sum(span.end_t - span.start_t for span in in_vain)
        lines.append(f"pending {plural(len(in_vain), 'time')} without firing ({length_s:.0f} s)")
    return lines or ["never"]
