"""Replay a recording in event time: each stream's course, sampled as Prometheus would scrape it.

Scrapes happen at whole multiples of their interval; a real server's offset within the interval differs from site to site.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from omniwatch.core.rule_states import Sample
from omniwatch.core.samples import Sample as DeviceSample
from omniwatch.core.stream import Stream
from omniwatch.core.streams import CLOCK_STEP_S, StreamTable
from omniwatch.core.totals import Totals
from omniwatch.core.turns import Judged
from omniwatch.events import Event, Rtt, StreamStart
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings


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


class Replay(RecordedTable):
    """The sidecar's own table, which also keeps a track of each stream, and counts the turns that were bad."""

    def __init__(self, settings: Settings, device: Iterable[DeviceSample] = ()) -> None:
        """`device` are samples of the device of that time."""
        super().__init__(settings, self._judged, device)
        self.tracks: dict[str, Track] = {}
        self.turns_bad = 0

    def _judged(self, judged: Judged) -> None:
        self.turns_bad += bool(judged.verdicts)

    def apply_all(self, batch: Iterable[Event], source: str = "") -> None:
        """Take events in their order, each in the table and in its stream's track."""
        for event in batch:
            track = self.tracks.get(event.stream)
            if track is None:
                track = self.tracks[event.stream] = Track(event.stream, event.t, self.settings)
            track.apply(event)
            super().apply_all((event,), source)

    def finish(self) -> None:
        """Take the samples due until the recording's end. The table is then as it was: `hear_out` judges the last turns."""
        self.advance(self.now)
        for track in self.tracks.values():
            track.scrape_until(self.now)

    def hear_out(self) -> None:
        """Judge the turns that had ended when the recording did. Streams leave the table; tracks stay."""
        super().finish()


def clock(seconds: float) -> str:
    """Write a time into a recording as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
