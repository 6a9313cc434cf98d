"""Record one turn as its verdict needs it: moments, speech handed over and arrived, the client's word.

Speech is kept in pieces. Of a piece, `t` is the moment from which a player could have played it without a gap inside. So two
pieces become one without changing any underrun: t = max(t_1, t_2 - d_1), whatever came before (an operation of the max-plus algebra).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from omniwatch.events import Turn

PIECES = 64
"""Pieces kept of a turn's speech; of more, those with the least pauses between them become one."""
PIECES_LEFT = 48
"""Pieces left when there are more: what is done seldom costs little."""
TOGETHER_S = 0.2
"""Speech that follows within this time is the same piece, while it is shorter than TOGETHER_MS."""
TOGETHER_MS = 400.0
SPELLS = 32
"""Changes kept of how many other turns are answered; of more, the shortest spell is left out."""
NEVER = -1.0
"""Stands for a moment that has not come."""


class Piece(msgspec.Struct, gc=False, omit_defaults=True):
    """Speech that was handed over, or arrived, together."""

    t: float
    last_t: float
    """When the last of it came."""
    ms: float
    first_t: float = NEVER
    """When the first of it came."""
    window_ms: float = 0.0
    """Time with the client's receive window closed until it arrived, since the piece before."""


def add(pieces: list[Piece], t: float, ms: float) -> Piece:
    """Add speech that came at t; return its piece."""
    if pieces:
        last = pieces[-1]
        if t - last.last_t < TOGETHER_S and last.ms < TOGETHER_MS:
            _append(last, t, t, ms)
            return last
    piece = Piece(t, t, ms, t)
    pieces.append(piece)
    if len(pieces) > PIECES:
        _merge(pieces)
    return piece


def _append(piece: Piece, t: float, last_t: float, ms: float) -> None:
    piece.t = max(piece.t, t - piece.ms / 1000)
    piece.last_t = max(piece.last_t, last_t)
    piece.ms += ms


def _merge(pieces: list[Piece]) -> None:
    while len(pieces) > PIECES_LEFT:
        pauses = [b.first_t - a.last_t for a, b in pairwise(pieces)]
        at = pauses.index(min(pauses))
        first, second = pieces[at], pieces.pop(at + 1)
        _append(first, second.t, second.last_t, second.ms)
        first.window_ms += second.window_ms


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One turn of one listener. Times in seconds on the server's clock, NEVER where they have not come."""

    turn: Turn | None
    number: int
    """Its number in the recording, from 1."""
    slot: int = -1
    kind: str = ""
    asked_t: float = NEVER
    nth: int = 0
    """Its place among the turns of a new writer, from 1; 0 where that is not known."""
    alone: bool = True
    """Nobody else was being answered when it was asked."""
    text_t: float = NEVER
    sent_t: float = NEVER
    """When its first speech was handed over."""
    sent: list[Piece] = []
    sent_ms: float = 0.0
    arrived: list[Piece] = []
    arrived_ms: float = 0.0
    ear: str = "sent"
    """By what it is known when speech arrived: "kernel" or "sent"."""
    rtt_ms: float | None = None
    """From the question to the first speech, by the server."""
    silent_ms: float = 0.0
    """Speech that was digital silence."""

    client_rtt_ms: float | None = None
    """The same by the client's own word."""
    underrun_ms: float | None = None
    """What its player starved, by the client's own word."""

    retrans: int = 0
    """Segments sent again."""
    closed_ms: float = 0.0
    """Time with the client's receive window closed since the last that arrived."""
    waiting: int = 0
    """Most bytes that the kernel held unacknowledged."""
    paused_ms: float = 0.0
    """By how much the tap's own thread came late, in all."""
    pauses: list[tuple[float, float]] = []
    """The longest of these: when it was over, and how long it was, in ms."""
    cuts: list[float] = []
    """When its client came back after a lost connection."""
    others: list[tuple[float, int]] = []
    """From when on how many other turns were being answered."""

    ended_t: float = NEVER
    outcome: str = ""
    chars: int | None = None
    """Length of the answer's text."""
    over_t: float = NEVER
    """When its playback was over."""
    heard: bool = True
    """The listener did not go away for good, and no clock was set meanwhile."""
    ahead_s: float | None = None
    """By how much its times are ahead of the clock that never steps, by the first of them."""

    skew_ms: float = 0.0
    """The largest drift that starving does not explain, with its sign."""
    skew_parts: dict[str, float] = {}
    """Of it: by the picture's clock, by jumps, by jumps at a return."""
    ahead_ms: float = 0.0
    """How far what was sent ran ahead of what was heard, at most."""

    def note_pause(self, t: float, ms: float) -> None:
        """Take that the tap's thread was late by so much at t."""
        self.paused_ms += ms
        if ms >= 100.0:
            self.pauses = sorted([*self.pauses, (t, ms)], key=lambda pause: -pause[1])[:4]

    def note_others(self, t: float, count: int) -> None:
        """Take that from t on so many other turns are being answered."""
        if count == (self.others[-1][1] if self.others else 0):
            return
        self.others.append((t, count))
        if len(self.others) > SPELLS:
            lengths = [b[0] - a[0] for a, b in pairwise(self.others)]
            del self.others[lengths.index(min(lengths))]

    def others_s(self, begin: float, end: float) -> float:
        """Return for how long other turns were being answered between two moments, each for itself."""
        found, until = 0.0, end
        for t, count in reversed(self.others):
            found += count * max(0.0, until - max(t, begin))
            until = min(until, t)
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, without the turn's own id, which the client may have given."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        del record["turn"]
        return record
