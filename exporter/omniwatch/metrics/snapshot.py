"""Take what one scrape reads from the stream table, and compute readings over several streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from omniwatch.core.stream import Stream
from omniwatch.core.streams import StreamTable
from omniwatch.core.totals import Totals
from omniwatch.ingest.intake import Intake


class ScrapeSnapshot(NamedTuple):
    """What one scrape sees.

    `behind` has, for each source with more to read, the time of its newest event.
    """

    now: float
    table: StreamTable
    intakes: Iterable[Intake] = ()
    reload_ok: bool = True
    reload_t: float = 0.0
    checkpoint_errors: int = 0
    behind: Mapping[str, float] = MappingProxyType({})

    @property
    def totals(self) -> Totals:
        """The table's totals."""
        return self.table.totals

    def at(self, stream: Stream) -> float:
        """Return the time that a stream has reached: the present, or its source's newest event while there is more to read."""
        return min(self.now, self.behind.get(stream.source, self.now))

    @property
    def slotted(self) -> list[Stream]:
        """The streams that have series."""
        return [stream for stream in self.table.streams if stream.slot >= 0]


def rtt_ms(stream: Stream, view: ScrapeSnapshot) -> float | None:
    """Return the round trip in ms that is shown."""
    return view.table.rtt_ms(stream, view.at(stream))


def drift_ms(stream: Stream, view: ScrapeSnapshot) -> float | None:
    """Return the drift in ms that is shown."""
    return view.table.drift_ms(stream, view.at(stream))


def cumulative_s(stream: Stream, view: ScrapeSnapshot) -> float | None:
    """Return drift plus every correction made, in seconds."""
    cumulative_ms = view.table.cumulative_ms(stream, view.at(stream))
    return None if cumulative_ms is None else cumulative_ms / 1000


def slope_ppm(stream: Stream, view: ScrapeSnapshot) -> float | None:
    """Return the drift's growth in parts per million of time; None while there is too little to tell, or nobody there."""
    slope = None if view.table.is_away(stream, view.at(stream)) else stream.trend.slope()
    return None if slope is None else slope.ms_per_s * 1000


def eta_s(stream: Stream, view: ScrapeSnapshot) -> float | None:
    """Return the seconds until |drift| reaches the page threshold; None while there is too little to tell."""
    slope, drift = stream.trend.slope(), drift_ms(stream, view)
    if slope is None or drift is None:
        return None
    return slope.eta_s(drift, view.table.settings.alerts.drift_page_ms)


def stream_json(stream: Stream, view: ScrapeSnapshot) -> dict[str, Any]:
    """Return a stream for people and programs, with its id, as JSON values."""
    return {
        "stream": stream.slot if stream.slot >= 0 else None,
        "id": stream.id,
        "kind": stream.kind,
        "peer": stream.peer,
        "state": state_word(stream),
        "turn": stream.asked_turn if stream.asked else stream.turn,
        "drift_ms": drift_ms(stream, view),
        "drift_worst_ms": stream.worst_ms,
        "drift_cumulative_s": cumulative_s(stream, view),
        "drift_slope_ppm": slope_ppm(stream, view),
        "drift_eta_s": eta if (eta := eta_s(stream, view)) != float("inf") else None,
        "rtt_ms": rtt_ms(stream, view),
        "rtt_vantage": stream.answers.vantage,
        "silent_s": stream.silent_s(view.at(stream)),
        "ear": stream.ear,
        "congestion": stream.congestion,
        "resent": stream.resent,
        "held_back": stream.is_held_back,
        "behind_s": view.at(stream) - stream.known_until(view.at(stream)),
        "away": view.table.is_away(stream, view.at(stream)),
        "since": stream.opened_t,
        "last_event": stream.last_t,
    }


def state_word(stream: Stream) -> str:
    """Return what a stream is about: leaving, speaking, waiting or listening."""
    if stream.closing:
        return "leaving"
    return "speaking" if stream.speaking else "waiting" if stream.asked else "listening"
