"""Write a backtest's findings as text: what fired, was only pending or was silent, and what cannot be judged."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from omniwatch.desk.backtest.compare import Comparison, Difference, of_series
from omniwatch.desk.backtest.notifications import Notification, SentCounts, counts
from omniwatch.desk.backtest.recording_source import utc
from omniwatch.desk.backtest.rules import Standing
from omniwatch.desk.backtest.run import Findings, Verdict
from omniwatch.desk.backtest.states import Episode, Labels
from omniwatch.replay import clock
from omniwatch.replay.text import plural

WIDTH = 110
SEVERITIES = ("page", "ticket")


def report(findings: Findings, *, verbose: bool = False) -> str:
    """Return the recording in a line, then the rules by what they did.

    Rules of which the recording cannot say anything are counted; `verbose` names them and the series that it lacks.
    """
    active = sorted(
        (verdict for verdict in findings.verdicts if verdict.alerts), key=lambda one: rank(one.rule.severity)
    )
    lines = [_recording(findings)]
    for severity in dict.fromkeys(verdict.rule.severity for verdict in active):
        lines += ["", f"{severity or 'no severity'}:"]
        for verdict in active:
            if verdict.rule.severity == severity:
                lines += _active(findings, verdict)
    return "\n".join([*lines, *_sent(findings), *_rest(findings.verdicts, verbose)]) + "\n"


def rank(severity: str) -> int:
    """Return a severity's place: pages first."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _recording(findings: Findings) -> str:
    alerts = findings.side.settings.alerts
    parts = [
        f"{plural(findings.events, 'event')}, {clock(findings.last_t - findings.first_t)} from "
        f"{utc(findings.first_t)}",
        f"{plural(findings.scrapes, 'scrape')}, one each {alerts.scrape_interval_s} s",
        plural(len(findings.verdicts), "alert rule"),
        *(f"{plural(n, 'line')} refused: {reason}" for reason, n in findings.refused.items() if n),
        *([f"{plural(findings.lost, 'event')} lost"] if findings.lost else []),
    ]
    return "; ".join(parts)


def _active(findings: Findings, verdict: Verdict) -> Iterator[str]:
    for alert in verdict.alerts:
        labels = shown(of_series(verdict, alert), findings.side.targets[0])
        yield f"  {verdict.rule.name}  {labels}".rstrip()
        for words in _lives(alert.episodes, findings.first_t):
            yield f"      {words}"


def shown(labels: Labels, target: dict[str, str]) -> str:
    """Write the labels that tell an alert from others of the same sidecar."""
    return ", ".join(f'{name}="{text}"' for name, text in labels if target.get(name) != text)


def _lives(episodes: Sequence[Episode], first_t: float) -> Iterator[str]:
    """Say when an alert fired, each time with its pending and its worst value, and what came to nothing."""
    for episode in episodes:
        if episode.firing_t is not None:
            waited = episode.firing_t > episode.pending_t
            since = f"pending {at(episode.pending_t, first_t)}, " if waited else ""
            yield f"{since}firing {firing(episode, first_t)}, worst {_worst(episode, first_t)}"
    vain = [episode for episode in episodes if not episode.fired]
    if vain:
        over = [episode.over_t - episode.pending_t for episode in vain if episode.over_t is not None]
        still = (
            f", pending since {at(vain[-1].pending_t, first_t)} at the end" if len(over) < len(vain) else ""
        )
        gone = f"pending {plural(len(over), 'time')} without firing ({sum(over):.0f} s)" if over else ""
        worst = max(vain, key=lambda one: abs(one.worst))
        yield f"{gone}{still}".removeprefix(", ") + f", worst {_worst(worst, first_t)}"


def firing(episode: Episode, first_t: float) -> str:
    """Write from when to when an episode was firing."""
    began = at(episode.firing_t or 0.0, first_t)
    if episode.over_t is None:
        return f"{began}, still at the end"
    return f"{began} to {at(episode.over_t, first_t)} ({episode.over_t - (episode.firing_t or 0.0):.0f} s)"


def at(t: float, first_t: float) -> str:
    """Write a time as one into the recording; what was before it was so from its beginning."""
    return clock(max(t - first_t, 0.0))


def _worst(episode: Episode, first_t: float) -> str:
    return f"{episode.worst:.4g} at {at(episode.worst_t, first_t)}"


def _sent(findings: Findings) -> Iterator[str]:
    """Say what each receiver was sent, a line a message."""
    for receiver, sent in counts(findings.sent).items():
        yield ""
        yield f"sent to {receiver}: {_counts(sent)}"
        for one in findings.sent:
            if one.receiver == receiver:
                group = shown(one.group, findings.side.targets[0])
                yield f"  {at(one.t, findings.first_t)}  {_message(one)}" + (f"  of {group}" if group else "")


def _counts(sent: SentCounts) -> str:
    return f"{plural(sent.incidents, 'incident')}, {plural(sent.messages, 'message')}"


def _message(one: Notification) -> str:
    parts = [
        f"{word} {', '.join(_names(alerts))}"
        for word, alerts in (("firing", one.firing), ("resolved", one.resolved))
        if alerts
    ]
    return "; ".join(parts) + (" (again)" if one.repeats else "")


def _names(alerts: Iterable[Labels]) -> list[str]:
    """Name alerts, with how many there are of a name where that is more than one."""
    found = Counter(dict(labels).get("alertname", "") for labels in alerts)
    return [name + (f" ({number})" if number > 1 else "") for name, number in found.items()]


def _rest(verdicts: Sequence[Verdict], verbose: bool) -> Iterator[str]:
    """Say what did nothing, and tell apart those of which the recording cannot say anything."""
    silent = [one for one in verdicts if one.standing is Standing.JUDGED and not one.alerts and not one.error]
    if silent:
        yield from _listed("silent", (one.rule.name for one in silent))
    for standing, heading in (
        (Standing.MISSING, "not in the recording"),
        (Standing.JUDGED, "in part not in the recording"),
    ):
        lacking = [one for one in verdicts if one.standing is standing and one.names]
        if lacking and not verbose:
            yield from ("", f"{heading}: {plural(len(lacking), 'rule')} (--verbose names them)")
        elif lacking:
            yield from _listed(heading, (f"{one.rule.name} ({', '.join(one.names)})" for one in lacking))
    assumed = [one for one in verdicts if one.standing is Standing.ASSUMED]
    if assumed:
        yield from _listed(
            "not told, as all that is scraped is taken to be up and the sidecar in good health",
            (one.rule.name for one in assumed),
        )
    for one in verdicts:
        if one.error:
            yield from ("", f"Prometheus refuses {one.rule.name}: {one.error}")


def _listed(heading: str, words: Iterable[str]) -> Iterator[str]:
    yield from ("", f"{heading}:")
    yield from textwrap.wrap(
        ", ".join(words),
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def comparison(found: Comparison, first: Findings, second: Findings) -> str:
    """Return how two rule sets differ, a line for each firing."""
    names = first.side.name, second.side.name
    lines = ["", f"{names[0]} against {names[1]}:"]
    same = [one for one in found.firings if one.later_s == 0]
    for one in found.firings:
        if one.later_s != 0:
            labels = shown(one.labels, first.side.targets[0])
            lines.append(f"  {one.rule}  {labels}".rstrip())
            lines.append(f"      {_difference(one, first.first_t, names)}")
    if same:
        lines += _listed("fires at the same time with both", dict.fromkeys(one.rule for one in same))
    if not found.firings:
        lines.append("  nothing fires with either")
    ours, theirs = counts(first.sent), counts(second.sent)
    for receiver in sorted({*ours, *theirs}):
        before, after = (sent.get(receiver, SentCounts(0, 0)) for sent in (ours, theirs))
        if before != after:
            lines += ["", f"sent to {receiver}: {_counts(before)}; {_counts(after)} with {names[1]}"]
    for name, rules in ((names[0], found.only_first), (names[1], found.only_second)):
        if rules:
            lines += _listed(f"only {name} has", rules)
    return "\n".join(lines) + "\n"


def _difference(one: Difference, first_t: float, names: tuple[str, str]) -> str:
    if one.first is not None and one.second is not None:
        later_s = one.later_s or 0.0
        words = f"{abs(later_s):.0f} s {'later' if later_s > 0 else 'earlier'} with {names[1]}"
        return f"{words}: firing {firing(one.second, first_t)}, not {firing(one.first, first_t)}"
    if one.first is not None:
        return f"only with {names[0]}: firing {firing(one.first, first_t)}"
    assert one.second is not None
    return f"only with {names[1]}: firing {firing(one.second, first_t)}"
