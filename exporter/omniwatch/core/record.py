"""Record one turn as its verdict needs it: moments, speech handed over and arrived, the client's word.

Speech is kept in pieces. Of a piece, `t` is the moment from which a player could have played it without a gap inside. So two
pieces become one without changing any underrun: t = max(t_1, t_2 - d_1), whatever came before (an operation of the max-plus algebra).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from omniwatch.core.samples import SENSORS, Spell
from omniwatch.events import Turn

PIECES = 64
"""Pieces kept of a turn's speech; of more, those with the least pauses between them become one."""
PIECES_LEFT = 48
"""Pieces left when there are more: what is done seldom costs little."""
TOGETHER_S = 0.2
"""Speech that follows within this time is the same piece, while it is shorter than TOGETHER_MS."""
TOGETHER_MS = 400.0
DEVICE_SPELLS = 64
"""Spells kept of the device's samples, those in which most was lost."""
SPELLS = 32
"""Changes kept of how many other turns are answered; of more, the shortest spell is left out."""
FRAME_MS = 80.0
"""Length of a codec frame, the least speech that comes at once."""
NEVER = -1.0
"""Stands for a moment that has not come."""


class Piece(msgspec.Struct, gc=False, array_like=True):
    """Speech that was handed over, or arrived, together."""

    t: float
    last_t: float
    """When the last of it came."""
    ms: float
    first_t: float = NEVER
    """When the first of it came."""
    window_ms: float = 0.0
    """Time with the client's receive window closed until it arrived, since the piece before."""


class Speech(Protocol):
    """Speech that came at t, such as an `audio` event."""

    t: float
    dur_ms: float
    silent: bool | None


class Arrival(msgspec.Struct):
    """Speech that arrived."""

    t: float
    dur_ms: float
    silent: bool | None = None


# Taken for every second event: deliberately written in place, see tests/bench.
def add(pieces: list[Piece], speech: Iterable[Speech]) -> tuple[float, float, float]:
    """Add speech in its order; return its length in all, of that the silence, and its longest chunk, in ms."""
    added_ms = silent_ms = longest_ms = 0.0
    piece = pieces[-1] if pieces else Piece(NEVER, NEVER, TOGETHER_MS)
    since_t, last_t, whole_ms = piece.t, piece.last_t, piece.ms
    for came in speech:
        t, ms = came.t, came.dur_ms
        added_ms += ms
        if ms > longest_ms:
            longest_ms = ms
        if came.silent:
            silent_ms += ms
        if t - last_t < TOGETHER_S and whole_ms < TOGETHER_MS:
            at = t - whole_ms / 1000
            if at > since_t:
                since_t = at
            if t > last_t:
                last_t = t
            whole_ms += ms
            continue
        piece.t, piece.last_t, piece.ms = since_t, last_t, whole_ms
        if len(pieces) >= PIECES:
            _merge(pieces)
        since_t, last_t, whole_ms = t, t, ms
        piece = Piece(t, t, ms, t)
        pieces.append(piece)
    piece.t, piece.last_t, piece.ms = since_t, last_t, whole_ms
    return added_ms, silent_ms, longest_ms


def _append(piece: Piece, t: float, last_t: float, ms: float) -> None:
    piece.t = max(piece.t, t - piece.ms / 1000)
    piece.last_t = max(piece.last_t, last_t)
    piece.ms += ms


def _merge(pieces: list[Piece]) -> None:
    # To merge two pieces leaves the other pauses as they are, so all that go are chosen in one pass.
    pauses = [b.first_t - a.last_t for a, b in pairwise(pieces)]
    least = sorted(range(len(pauses)), key=pauses.__getitem__)[: len(pieces) - PIECES_LEFT]
    for at in sorted(least, reverse=True):
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
    chunk_ms: float = 0.0
    """The longest chunk of its speech."""
    first_ms: float = 0.0
    """The first."""
    arrived: list[Piece] = []
    arrived_ms: float = 0.0
    ear: str = "sent"
    """By what it is known when speech arrived: "kernel" or "sent"."""
    rtt_ms: float | None = None
    """From the question to the first speech, by the server."""
    silent_ms: float = 0.0
    """Speech that was digital silence."""

    client_rtt_ms: float | None = None
    """From the question to the first speech, in ms, by the client's own word."""
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

    device: list[Spell] = []
    """When something was lost by the device's samples."""
    sensors: list[str] = []
    """What the device can say at all."""

    ended_t: float = NEVER
    outcome: str = ""
    chars: int | None = None
    """Length of the answer's text."""
    cjk: int | None = None
    """Of these, Chinese, Japanese and Korean characters."""
    over_t: float = NEVER
    """When its playback was over."""
    heard: bool = True
    """The listener did not go away for good, and no clock was set meanwhile."""
    ahead_s: float | None = None
    """By how much its times are ahead of the clock that never steps, by the first of them."""

    is_stated: bool = False
    """The server states where voice and picture are."""
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

    def note_device(self, spells: Iterable[Spell]) -> None:
        """Take what the device's samples say of the turn's time."""
        every = list(spells)
        self.sensors = [name for name in SENSORS if any(getattr(spell, name) is not None for spell in every)]
        lost = [spell for spell in every if any(spell[2:])]
        self.device = sorted(sorted(lost, key=lambda spell: -max(filter(None, spell[2:])))[:DEVICE_SPELLS])

    def lost_s(self, sensor: str, times: Iterable[tuple[float, float]]) -> float:
        """Return the seconds lost in these times, by one of SENSORS. All of a spell's loss may fall into the part that overlaps."""
        every = list(times)
        return sum(
            min(
                getattr(spell, sensor) or 0.0,
                sum(max(0.0, min(spell.end_t, end) - max(spell.begin_t, begin)) for begin, end in every),
            )
            for spell in self.device
        )

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

    @property
    def began_t(self) -> float:
        """When it began: its question, or its first speech where no question is known."""
        return self.sent_t if self.asked_t == NEVER else self.asked_t

    def as_of(self, now: float) -> Record:
        """Return the record of this turn, which is not over, had it ended now: what is due comes now."""
        seen = msgspec.structs.replace(self, over_t=now, outcome=self.outcome or "completed")
        if self.sent_t == NEVER:
            seen.sent_t = now
        elif self.ended_t == NEVER:
            seen.sent = [*self.sent, Piece(now, now, FRAME_MS, now)]
        if self.ear == "kernel" and self.sent_t != NEVER and self.sent_ms - self.arrived_ms > 1:
            seen.arrived = [
                *self.arrived,
                Piece(now, now, self.sent_ms - self.arrived_ms, now, self.closed_ms),
            ]
        elif len(seen.sent) > len(self.sent):
            seen.arrived = [*self.arrived, seen.sent[-1]]
        if self.rtt_ms is None and self.asked_t != NEVER and self.ear == "kernel" and self.sent_t != NEVER:
            seen.rtt_ms = 1000 * (now - self.asked_t)
        return seen

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values: times in s since `began_t`, none of the ids and names that a client may have given."""
        record: dict[str, Any] = msgspec.structs.asdict(self)
        begin = self.began_t

        def since(t: float) -> float | None:
            return None if t == NEVER else round(t - begin, 3)

        for name in ("turn", "ahead_s", "over_t"):
            record.pop(name, None)
        by_client = {name: record.pop(name, None) for name in ("client_rtt_ms", "underrun_ms")}
        if any(value is not None for value in by_client.values()):
            # Its own word, which nothing here vouches for.
            record["by_client"] = by_client
        for name in ("asked_t", "text_t", "sent_t", "ended_t"):
            record[name] = since(getattr(self, name))
        for name in ("sent", "arrived"):
            record[name] = [
                [since(p.t), since(p.last_t), round(p.ms), since(p.first_t), round(p.window_ms)]
                for p in getattr(self, name)
            ]
        for name in ("pauses", "others"):
            record[name] = [[since(t), value] for t, value in getattr(self, name)]
        record["device"] = [[since(a), since(b), *lost] for a, b, *lost in self.device]
        record["cuts"] = [since(t) for t in self.cuts]
        found: dict[str, Any] = msgspec.to_builtins({"began_t": round(begin, 3), **record})
        return found
