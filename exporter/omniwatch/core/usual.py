"""What a good turn takes: its spans, its pace and its chunks. Pure."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import NamedTuple

from omniwatch.core.record import NEVER, Piece, Record


class Spans(NamedTuple):
    """How long the parts of an answer take, in s; `voice` is 0 where the first text is not known and is in `thinking`."""

    thinking: float
    voice: float
    network: float


class Usual(NamedTuple):
    """What is usual of good turns that began alone: the spans, the seconds that a second of speech took, and two chunks in s.

    These are the longest one, and the first. 0: not known.
    """

    thinking: float = 0.3
    voice: float = 0.25
    network: float = 0.1
    pace: float = 0.0
    chunk: float = 0.0
    first: float = 0.0


def spans_of(record: Record) -> Spans | None:
    """Return the parts of a turn's delay; None for one without a question or without speech."""
    if NEVER in (record.asked_t, record.sent_t) or record.sent_t < record.asked_t:
        return None
    served_s = record.sent_t - record.asked_t
    rtt_ms = record.rtt_ms if record.client_rtt_ms is None else record.client_rtt_ms
    way_s = max(0.0, served_s if rtt_ms is None else rtt_ms / 1000) - served_s
    if not record.asked_t <= record.text_t <= record.sent_t:
        return Spans(served_s, 0.0, max(0.0, way_s))
    return Spans(record.text_t - record.asked_t, record.sent_t - record.text_t, max(0.0, way_s))


def usual_of(record: Record) -> Usual | None:
    """Return what a good turn adds to what is usual."""
    spans = spans_of(record)
    return (
        Usual(*spans, pace_of(record.sent), record.chunk_ms / 1000, record.first_ms / 1000) if spans else None
    )


def pace_of(sent: list[Piece]) -> float:
    """Return the seconds that a second of speech took, 0 where too little was sent to say."""
    return median([1000 * (b.last_t - a.last_t) / b.ms for a, b in pairwise(sent)] or [0.0])
