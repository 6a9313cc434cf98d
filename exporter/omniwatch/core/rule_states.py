"""When the contract's rules would be pending and firing, evaluated over samples as Prometheus evaluates them.

Evaluations happen at whole multiples of their interval; a real server's offset within it differs from site to site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, nextafter
from typing import NamedTuple

from omniwatch.settings import Alerts


class Sample(NamedTuple):
    """A stream's two gauges at a scrape; None where there is no series."""

    t: float
    drift_ms: float | None = None
    rtt_ms: float | None = None
    vantage: str = "server"

    @property
    def has_series(self) -> bool:
        """Whether the scrape showed anything of the stream."""
        return self.drift_ms is not None or self.rtt_ms is not None


class Span(NamedTuple):
    """For how long a rule was in a state, "pending" or "firing"; `over` is False when the samples ended first."""

    state: str
    start_t: float
    end_t: float
    over: bool = True


class Rule(NamedTuple):
    """A rule of the contract; `values` gives what a sample has for each series that the rule may match."""

    name: str
    threshold: float
    for_s: float
    values: Callable[[Sample], tuple[float | None, ...]]


def contract_rules(alerts: Alerts) -> tuple[Rule, Rule]:
    """Return the two rules as the settings have them."""
    return (
        Rule("CodecDrift", alerts.drift_page_ms, alerts.drift_for_s, _size_of_drift),
        Rule("TokenRTT", alerts.rtt_page_ms, alerts.rtt_for_s, _rtt_by_vantage),
    )


def _size_of_drift(sample: Sample) -> tuple[float | None]:
    return (None if sample.drift_ms is None else abs(sample.drift_ms),)


def _rtt_by_vantage(sample: Sample) -> tuple[float | None, float | None]:
    return (None, sample.rtt_ms) if sample.vantage == "client" else (sample.rtt_ms, None)


def spans(rule: Rule, samples: Sequence[Sample], eval_s: float) -> list[Span]:
    """Return when a rule was pending and firing for one stream, in the order of time."""
    times = [sample.t for sample in samples]
    series = zip(*map(rule.values, samples), strict=True)
    found = (
        rule_states(list(zip(times, values, strict=True)), rule.threshold, rule.for_s, eval_s)
        for values in series
    )
    return sorted((span for states in found for span in states), key=lambda span: span.start_t)


class RuleStates:
    """A rule "value > threshold for for_s" over one series, evaluated each `eval_s` seconds, sample by sample."""

    def __init__(self, threshold: float, for_s: float, eval_s: float) -> None:
        self.over: list[Span] = []
        """The states that are over, in the order of time."""
        self._threshold, self._for_s, self._eval_s = threshold, for_s, eval_s
        self._pending_t: float | None = None
        self._firing_t: float | None = None
        self._due = self._evaluated_t = float("-inf")
        self._last: tuple[float, float | None] | None = None

    def add(self, t: float, value: float | None) -> None:
        """Take the sample at t, in seconds; None: the series is absent, and the rule inactive from the next evaluation on.

        A time before its predecessor's is a clock set back: the rule begins anew.
        """
        self._evaluate_before(t)
        self._last = t, value
        if not self._due - self._eval_s <= t <= self._due:
            self._due = ceil(t / self._eval_s) * self._eval_s
        self._evaluate_before(nextafter(t, float("inf")))

    def now(self) -> Span | None:
        """Return the state that goes on at the last sample; None where the rule is inactive."""
        since_t = self._pending_t if self._firing_t is None else self._firing_t
        if since_t is None or self._last is None:
            return None
        return Span("pending" if self._firing_t is None else "firing", since_t, self._last[0], over=False)

    def _evaluate_before(self, until: float) -> None:
        while self._last is not None and self._due < until:
            value = self._last[1]
            self._evaluate(self._due, value)
            self._due += self._eval_s
            if value is None:
                # Of an absence only the first evaluation matters, however long it lasts.
                self._last = None

    def _evaluate(self, at: float, value: float | None) -> None:
        if at < self._evaluated_t:
            self._leave(self._evaluated_t)
        self._evaluated_t = at
        if value is None or not value > self._threshold:
            self._leave(at)
            return
        if self._pending_t is None:
            self._pending_t = at
        if self._firing_t is None and at - self._pending_t >= self._for_s:
            if at > self._pending_t:
                self.over.append(Span("pending", self._pending_t, at))
            self._firing_t = at

    def _leave(self, at: float) -> None:
        if self._firing_t is not None:
            self.over.append(Span("firing", self._firing_t, at))
        elif self._pending_t is not None:
            self.over.append(Span("pending", self._pending_t, at))
        self._pending_t = self._firing_t = None


def rule_states(
    samples: Sequence[tuple[float, float | None]], threshold: float, for_s: float, eval_s: float
) -> list[Span]:
    """Return the states of a rule "value > threshold for for_s", evaluated each eval_s seconds.

    `samples` are (t in seconds, value), None where the series is absent.
    """
    states = RuleStates(threshold, for_s, eval_s)
    for t, value in samples:
        states.add(t, value)
    last = states.now()
    return [*states.over, last] if last else states.over
