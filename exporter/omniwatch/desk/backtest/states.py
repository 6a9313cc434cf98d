"""Compute an alert's states as Prometheus does: inactive, pending or firing, from each evaluation's result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from omniwatch.desk.backtest.errors import BacktestError


@dataclass(slots=True)
class Episode:
    """One time that an alert was active; times are evaluations', in seconds since the epoch."""

    pending_t: float
    worst: float
    worst_t: float
    firing_t: float | None = None
    """None: it never fired."""
    over_t: float | None = None
    """The first evaluation without it; None: it was still active at the end."""

    @property
    def fired(self) -> bool:
        """Whether it came to firing."""
        return self.firing_t is not None


class Hold(NamedTuple):
    """A rule's waits in seconds, and whether its smaller values are the worse ones."""

    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    lower_is_worse: bool = False


class Series(NamedTuple):
    """A series that a query returned: values by evaluation time, the oldest first."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


Labels = tuple[tuple[str, str], ...]


def merged(answers: Iterable[Series]) -> dict[Labels, dict[float, float]]:
    """Return the values of each alert by its labels, the metric's name left out.

    Raises BacktestError where two series would be one alert: Prometheus refuses such a rule, too.
    """
    alerts: dict[Labels, dict[float, float]] = {}
    for answer in answers:
        labels = unnamed(answer.labels)
        values = alerts.setdefault(labels, {})
        for t, value in answer.points:
            if t in values:
                raise BacktestError(f"two series are one alert: {dict(labels)}")
            values[t] = value
    return alerts


def unnamed(labels: Mapping[str, str]) -> Labels:
    """Return labels in their order, the metric's name left out."""
    return tuple(sorted((name, text) for name, text in labels.items() if name != "__name__"))


def episodes(values: Mapping[float, float], evaluations: Iterable[float], hold: Hold) -> list[Episode]:
    """Return when one alert was active, from the values its expression had at the evaluations, absent where it had none.

    An alert fires at the first evaluation that is `for_s` or more after the one that found it pending, the same one
    where `for_s` is 0. A pending alert is gone at the first evaluation without it, a firing one once it has been away
    for `keep_firing_for_s`.
    """
    found: list[Episode] = []
    active: Episode | None = None
    away_t: float | None = None
    for t in evaluations:
        value = values.get(t)
        if value is not None:
            away_t = None
            if active is None:
                active = Episode(t, value, t)
                found.append(active)
            elif active.worst != active.worst or (
                value < active.worst if hold.lower_is_worse else value > active.worst
            ):
                active.worst, active.worst_t = value, t
        elif active is not None:
            if active.fired and away_t is None:
                away_t = t
            if away_t is None or t - away_t >= hold.keep_firing_for_s:
                active.over_t, active, away_t = t, None, None
        if active is not None and not active.fired and t - active.pending_t >= hold.for_s:
            active.firing_t = t
    return found
