"""What one scrape sees of the stream table, and the readings of a stream that need more than the stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from omniwatch.intake import Intake
from omniwatch.stream import Stream
from omniwatch.streams import StreamTable
from omniwatch.totals import Totals


class View(NamedTuple):
    """What one scrape sees. `path_rtt_ms` is the kernel's smoothed round-trip time per peer."""

    now: float
    table: StreamTable
    intakes: Iterable[Intake] = ()
    path_rtt_ms: Mapping[str, float] = MappingProxyType({})
    reload_ok: bool = True
    reload_t: float = 0.0
    checkpoint_errors: int = 0

    @property
    def totals(self) -> Totals:
        """The table's totals."""
        return self.table.totals

    @property
    def slotted(self) -> list[Stream]:
        """The streams that have series."""
        return [stream for stream in self.table.streams if stream.slot >= 0]


def rtt_ms(stream: Stream, view: View) -> float | None:
    """Return the answer's delay in ms; seen from the server, the way there and back is added where it is known."""
    if stream.rtt_ms is None or stream.rtt_vantage == "client":
        return stream.rtt_ms
    return stream.rtt_ms + view.path_rtt_ms.get(stream.peer or "", 0.0)


def cumulative_s(stream: Stream, view: View) -> float | None:
    """Return drift plus every correction made, in seconds."""
    drift_ms = stream.cumulative_at(view.now)
    return None if drift_ms is None else drift_ms / 1000


def slope_ppm(stream: Stream, view: View) -> float | None:
    """Return the drift's growth in parts per million of time; None while there is too little to tell."""
    slope = stream.trend.slope()
    return None if slope is None else slope.ms_per_s * 1000


def eta_s(stream: Stream, view: View) -> float | None:
    """Return the seconds until |drift| reaches the page threshold; None while there is too little to tell."""
    slope, drift = stream.trend.slope(), stream.drift_at(view.now)
    if slope is None or drift is None:
        return None
    return slope.eta_s(drift, view.table.settings.alerts.drift_page_ms)


def described(stream: Stream, view: View) -> dict[str, Any]:
    """Return a stream for people and programs, with its id, as JSON values."""
    return {
        "stream": stream.slot if stream.slot >= 0 else None,
        "id": stream.id,
        "kind": stream.kind,
        "peer": stream.peer,
        "state": _state(stream.asked, stream.speaking, stream.closing),
        "turn": stream.asked_turn if stream.asked else stream.turn,
        "drift_ms": stream.drift_at(view.now),
        "drift_worst_ms": stream.worst_ms,
        "drift_cumulative_s": cumulative_s(stream, view),
        "drift_slope_ppm": slope_ppm(stream, view),
        "drift_eta_s": eta if (eta := eta_s(stream, view)) != float("inf") else None,
        "rtt_ms": rtt_ms(stream, view),
        "rtt_vantage": stream.rtt_vantage,
        "silent_s": stream.silent_s(view.now),
        "since": stream.opened_t,
        "last_event": stream.last_t,
    }


def _state(asked: bool, speaking: bool, closing: bool) -> str:
    if closing:
        return "leaving"
    return "speaking" if speaking else "waiting" if asked else "listening"
