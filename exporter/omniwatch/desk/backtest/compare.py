"""Two rule sets over one recording: what fires earlier, later, or with one of them only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from omniwatch.desk.backtest.run import Alert, Findings, Verdict
from omniwatch.desk.backtest.states import Episode, Labels
from omniwatch.desk.backtest.templates import TEMPLATED, is_template


class Difference(NamedTuple):
    """One firing of an alert, with either rule set; None where it did not fire with that one."""

    rule: str
    labels: Labels
    """Of the series alone: what the rules add may differ."""
    first: Episode | None
    second: Episode | None

    @property
    def later_s(self) -> float | None:
        """By how many seconds it fires later with the second; None where it fires with one only."""
        if self.first is None or self.second is None:
            return None
        return (self.second.firing_t or 0.0) - (self.first.firing_t or 0.0)


class Comparison(NamedTuple):
    """All firings, in the order of their first; and the rules that only one of the sets has."""

    firings: list[Difference]
    only_first: list[str]
    only_second: list[str]


def compare(first: Findings, second: Findings) -> Comparison:
    """Return how two backtests of one recording differ."""
    ours, theirs = _fired(first), _fired(second)
    firings = [
        Difference(name, labels, mine, other)
        for name, labels in dict.fromkeys((*ours, *theirs))
        for mine, other in pairs(ours.get((name, labels), ()), theirs.get((name, labels), ()))
    ]
    firings.sort(key=lambda one: min(e.firing_t or 0.0 for e in (one.first, one.second) if e is not None))
    names, others = (
        list(dict.fromkeys(verdict.rule.name for verdict in one.verdicts)) for one in (first, second)
    )
    return Comparison(
        firings,
        [name for name in names if name not in others],
        [name for name in others if name not in names],
    )


def pairs(ours: Sequence[Episode], theirs: Sequence[Episode]) -> list[tuple[Episode | None, Episode | None]]:
    """Put together the episodes that overlap, each with at most one, in the order of time."""
    left = list(theirs)
    found: list[tuple[Episode | None, Episode | None]] = []
    for mine in ours:
        other = next((one for one in left if _overlap(mine, one)), None)
        if other is not None:
            left.remove(other)
        found.append((mine, other))
    return [*found, *((None, other) for other in left)]


def _overlap(one: Episode, other: Episode) -> bool:
    return _ends(one) > other.pending_t and _ends(other) > one.pending_t


def _ends(episode: Episode) -> float:
    return float("inf") if episode.over_t is None else episode.over_t


def of_series(verdict: Verdict, alert: Alert) -> Labels:
    """Return an alert's labels without those that the rule adds, but for those it makes of the series' own."""
    given = verdict.rule.labels
    return tuple(
        (name, text)
        for name, text in alert.labels
        if name not in given or (is_template(given[name]) and text != TEMPLATED)
    )


def _fired(findings: Findings) -> dict[tuple[str, Labels], list[Episode]]:
    fired: dict[tuple[str, Labels], list[Episode]] = {}
    for verdict in findings.verdicts:
        for alert in verdict.alerts:
            firing = [episode for episode in alert.episodes if episode.fired]
            if firing:
                fired.setdefault((verdict.rule.name, of_series(verdict, alert)), []).extend(firing)
    return fired
