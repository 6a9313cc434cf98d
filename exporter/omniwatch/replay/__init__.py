"""Replay a recording in event time: each stream's course, and when the contract's rules would have fired.

Samples are taken as Prometheus would scrape, and rules evaluated as it would evaluate them. Both happen at whole multiples
of their intervals; a real server's offset within the interval differs from site to site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, nextafter
from typing import NamedTuple

from omniwatch.core.stream import Stream
from omniwatch.core.streams import CLOCK_STEP_S, StreamTable
from omniwatch.core.totals import Totals
from omniwatch.events import Event, Rtt, StreamStart
from omniwatch.settings import Alerts, Settings


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
    """A rule of the contract; `series` gives its values, a list for each series it may match."""

    name: str
    threshold: float
    for_s: float
    series: Callable[[Sequence[Sample]], list[list[tuple[float, float | None]]]]


def contract_rules(alerts: Alerts) -> tuple[Rule, Rule]:
    """Return the two rules as the settings have them."""
    return (
        Rule("CodecDrift", alerts.drift_page_ms, alerts.drift_for_s, _drift_series),
        Rule("TokenRTT", alerts.rtt_page_ms, alerts.rtt_for_s, _rtt_series),
    )


def _drift_series(samples: Sequence[Sample]) -> list[list[tuple[float, float | None]]]:
    return [[(s.t, None if s.drift_ms is None else abs(s.drift_ms)) for s in samples]]


def _rtt_series(samples: Sequence[Sample]) -> list[list[tuple[float, float | None]]]:
    return [
        [(s.t, s.rtt_ms if s.vantage == vantage else None) for s in samples]
        for vantage in ("server", "client")
    ]


def spans(rule: Rule, samples: Sequence[Sample], eval_s: float) -> list[Span]:
    """Return when a rule was pending and firing for one stream, in the order of time."""
    found = (rule_states(series, rule.threshold, rule.for_s, eval_s) for series in rule.series(samples))
    return sorted((span for states in found for span in states), key=lambda span: span.start_t)


def rule_states(
    samples: Sequence[tuple[float, float | None]], threshold: float, for_s: float, eval_s: float
) -> list[Span]:
    """Return the states of a rule "value > threshold for for_s", evaluated each eval_s seconds.

    `samples` are (t in seconds, value), None where the series is absent: as after a scrape without it, the rule is
    then inactive at its next evaluation. A time before its predecessor's is a clock set back: the rule begins anew.
    """
    states: list[Span] = []
    pending_t = firing_t = None
    last_t = float("-inf")

    def leave(at: float, over: bool = True) -> None:
        nonlocal pending_t, firing_t
        if firing_t is not None:
            states.append(Span("firing", firing_t, at, over))
        elif pending_t is not None:
            states.append(Span("pending", pending_t, at, over))
        pending_t = firing_t = None

    for at, value in _evaluations(samples, eval_s):
        if at < last_t:
            leave(last_t)
        last_t = at
        if value is None or not value > threshold:
            leave(at)
            continue
        if pending_t is None:
            pending_t = at
        if firing_t is None and at - pending_t >= for_s:
            if at > pending_t:
                states.append(Span("pending", pending_t, at))
            firing_t = at
    if samples:
        leave(samples[-1][0], over=False)
    return states


def _evaluations(
    samples: Sequence[tuple[float, float | None]], eval_s: float
) -> Iterator[tuple[float, float | None]]:
    """Yield each evaluation's time and the value it sees; of an absence only the first evaluation matters."""
    due = float("-inf")
    for number, (t, value) in enumerate(samples, 1):
        until = samples[number][0] if number < len(samples) else nextafter(t, float("inf"))
        if not due - eval_s <= t <= due:
            due = ceil(t / eval_s) * eval_s
        while due < until:
            yield due, value
            due += eval_s
            if value is None:
                break


class Track:
    """One stream of a recording, with a table of its own: what it counts is this stream's alone."""

    def __init__(self, stream: str, first_t: float, settings: Settings) -> None:
        self.stream = stream
        self.first_t = self.last_t = first_t
        self.kind: str | None = None
        self.samples: list[Sample] = []
        self.drift_ms: float | None = None
        self.drift_low_ms = self.drift_high_ms = 0.0
        self.worst_ms = 0.0
        self.worst_turn: str | int | None = None
        self.rtts_ms: dict[str, list[float]] = {"server": [], "client": []}
        self._table = StreamTable(settings)
        self._scrape_s = settings.alerts.scrape_interval_s
        self._next_scrape = self._scrape_after(first_t)

    @property
    def totals(self) -> Totals:
        """What was counted for this stream."""
        return self._table.totals

    @property
    def open_turns(self) -> int:
        """Turns that had not ended when the recording did."""
        return sum(live.asked + live.turn_open for live in self._table.streams)

    @property
    def vantage(self) -> str:
        """Whose round trips the stream shows: the client's, where it measured any."""
        return "client" if self.rtts_ms["client"] else "server"

    def apply(self, event: Event) -> None:
        """Take the stream's next event, after the scrapes that were due before it."""
        t = event.t
        if t > self._next_scrape:
            self.scrape_until(t)
        elif t < self._next_scrape - self._scrape_s - CLOCK_STEP_S:
            self._next_scrape = self._scrape_after(t)
        answers, waited_s = self._answers()
        self._table.apply(event)
        live = self._table.state.streams[self.stream]
        self.last_t = t
        if live.drift_ms is not None:
            self._observe(live.drift_ms, live)
        if self._answers()[0] > answers:
            self.rtts_ms["server"].append((self._answers()[1] - waited_s) * 1000)
        elif isinstance(event, Rtt):
            self.rtts_ms["client"].append(event.rtt_ms)
        elif isinstance(event, StreamStart):
            self.kind = event.kind

    def _answers(self) -> tuple[int, float]:
        """Return how many answers the server has seen, and the seconds that they took in all."""
        answers = self.totals.token_rtt["server"]
        return sum(answers.counts), answers.sum

    def _observe(self, drift_ms: float, live: Stream) -> None:
        if self.drift_ms is None:
            self.drift_low_ms = self.drift_high_ms = drift_ms
        self.drift_ms = drift_ms
        if drift_ms < self.drift_low_ms:
            self.drift_low_ms = drift_ms
        elif drift_ms > self.drift_high_ms:
            self.drift_high_ms = drift_ms
        if live.worst_ms > self.worst_ms:
            self.worst_ms, self.worst_turn = live.worst_ms, live.turn

    def _scrape_after(self, t: float) -> float:
        return ceil(t / self._scrape_s) * self._scrape_s

    def scrape_until(self, t: float) -> None:
        """Take the samples due before t; once the stream has gone, one that says so."""
        while self._next_scrape < t:
            now = self._next_scrape
            self._next_scrape += self._scrape_s
            self._table.advance(now)
            live = self._table.state.streams.get(self.stream)
            if live is None:
                if self.samples and self.samples[-1].has_series:
                    self.samples.append(Sample(now))
                self._next_scrape = self._scrape_after(t)
                return
            drift_ms = self._table.drift_ms(live, now)
            if drift_ms is not None:
                self._observe(drift_ms, live)
            self.samples.append(Sample(now, drift_ms, self._table.rtt_ms(live, now), live.answers.vantage))


class Replay(StreamTable):
    """The sidecar's own table, which also keeps a track of each stream."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.tracks: dict[str, Track] = {}
        self.first_t = self.now = 0.0
        self._advanced_t = 0.0

    def apply_all(self, batch: Iterable[Event], source: str = "") -> None:
        """Take events in their order, each in the table and in its stream's track."""
        for event in batch:
            self._apply(event, source)

    def _apply(self, event: Event, source: str) -> None:
        track = self.tracks.get(event.stream)
        if track is None:
            if not self.tracks:
                self.first_t = event.t
            track = self.tracks[event.stream] = Track(event.stream, event.t, self.settings)
        track.apply(event)
        if abs(event.t - self._advanced_t) >= self.settings.alerts.scrape_interval_s:
            self.advance(event.t)
            self._advanced_t = event.t
        super().apply_all((event,), source)
        self.now = event.t

    def finish(self) -> None:
        """Take the samples due until the recording's end."""
        self.advance(self.now)
        for track in self.tracks.values():
            track.scrape_until(self.now)


def clock(seconds: float) -> str:
    """Write a time into a recording as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
