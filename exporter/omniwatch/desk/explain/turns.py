"""Keep a record of each turn, and judge it when its playback is over. Pure: time comes in events or as an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign
from statistics import median
from typing import NamedTuple

from omniwatch import events
from omniwatch.core.answers import Turn
from omniwatch.core.stream import TURNS_KEPT, Stream
from omniwatch.core.totals import outcome_of
from omniwatch.desk.explain.record import NEVER, Record, add
from omniwatch.desk.explain.verdict import (
    RETURN_S,
    WARM_TURNS,
    Terms,
    Usual,
    Verdict,
    is_judged,
    judge,
    usual_of,
)

LATE_WORD_S = 5.0
"""A client's report counts so long after its turn was heard."""
USUAL = 200
"""Good turns of a kind that make what is usual."""
FEWEST = 20
"""Good turns before which the verdict's defaults say what is usual."""
OPEN = 128
"""Records of turns that are not over, over all streams; beyond it the oldest is dropped."""
KINDS = ("chat", "realtime", "video", "duplex")
"""Kinds of stream with a usual of their own; a writer must not be able to make more."""
WRITERS = 16
"""Writers whose turns are counted; beyond it the oldest is forgotten."""
NEW_LINES = 1000
"""A writer whose first turn that is seen stands within so many of its lines is new."""
JUMP_MS = 40.0
"""A stated drift that moves by more between two samples has jumped."""
SET_S = 0.1
"""A wall clock that gains more on the one that never steps within a turn was set."""


@dataclass(slots=True)
class Slide:
    """Where a stated drift comes from, in ms: what it slid, what it jumped, what it jumped at a return."""

    drift_ms: float = 0.0
    camera_ms: float = 0.0
    timestamps_ms: float = 0.0
    cut_ms: float = 0.0
    returned_t: float = NEVER


class Judged(NamedTuple):
    """A turn that is over."""

    stream: str
    record: Record
    verdicts: list[Verdict]


class Turns:
    """The records of the turns under way, and the verdicts of those that are over."""

    def __init__(self, terms: Terms, found: Callable[[Judged], None]) -> None:
        """Judge by `terms`; `found` takes each turn that was judged, good or bad."""
        self._terms, self._found = terms, found
        self._number = 0
        self._good: dict[str, list[Usual]] = {}
        """What good turns took, by kind of stream, the oldest first."""
        self._writers: dict[str, int] = {}
        """Turns of each writer that was new when it was first seen; -1 for one that was not."""
        self._open: dict[str, list[Record]] = {}
        """By stream, the oldest first."""
        self._slides: dict[str, Slide] = {}

    def asked(self, stream: Stream, event: events.TurnStart) -> None:
        """Take a question."""
        for before in list(self._open.get(stream.id, ())):
            if before.sent_t == NEVER:
                self.ended(stream, before.turn, event.t, "abandoned")
        record = self._begin(stream, event.turn, event)
        record.asked_t = event.t
        record.ear = event.ear or "sent"
        record.nth = self._nth(event)

    def _nth(self, event: events.TurnStart) -> int:
        writers, writer = self._writers, event.w
        if writer is None:
            return 0
        if writer not in writers:
            writers[writer] = 0 if event.n < NEW_LINES else -1
            if len(writers) > WRITERS:
                del writers[next(iter(writers))]
        if writers[writer] >= 0:
            writers[writer] += 1
        return max(0, writers[writer])

    def _begin(self, stream: Stream, turn: Turn, event: events.Event) -> Record:
        t = event.t
        self._number += 1
        answered = self._answered()
        for other in answered:
            other.note_others(t, len(answered))
        kind = stream.kind if stream.kind in KINDS else "other"
        record = Record(
            turn=turn, number=self._number, slot=stream.slot, kind=kind or "other", alone=not answered
        )
        record.note_others(t, len(answered))
        if event.m is not None:
            record.ahead_s = event.t - event.m
        own = self._open.setdefault(stream.id, [])
        own.append(record)
        del own[:-TURNS_KEPT]
        if sum(map(len, self._open.values())) > OPEN:
            oldest = min(self._open, key=lambda stream_id: self._open[stream_id][0].number)
            self._drop(oldest, self._open[oldest][0])
        return record

    def _answered(self) -> list[Record]:
        return [record for own in self._open.values() for record in own if record.ended_t == NEVER]

    def _drop(self, stream_id: str, record: Record) -> None:
        own = self._open[stream_id]
        own.remove(record)
        if not own:
            del self._open[stream_id]

    def _find(self, stream_id: str, turn: Turn) -> Record | None:
        for record in reversed(self._open.get(stream_id, ())):
            if record.turn == turn:
                return record
        return None

    def text(self, stream: Stream, event: events.Text) -> None:
        """Take that the answer's text begins."""
        record = self._find(stream.id, event.turn)
        if record and record.text_t == NEVER:
            record.text_t = event.t

    def sent(self, stream: Stream, event: events.Audio) -> None:
        """Take speech of the stream's turn that was handed over, and was not before."""
        t, dur_ms = event.t, event.dur_ms
        record = self._find(stream.id, stream.turn)
        if record is None:
            record = self._begin(stream, stream.turn, event)
            record.ear = "kernel" if stream.by_kernel else "sent"
        if record.sent_t == NEVER:
            record.sent_t, record.slot = t, stream.slot
        add(record.sent, t, dur_ms)
        if event.silent:
            record.silent_ms += dur_ms
        record.sent_ms += dur_ms
        if self._terms.client_buffer_ms:
            record.ahead_ms = max(record.ahead_ms, record.sent_ms - stream.player.position_ms(t))

    def arrived(self, stream: Stream, event: events.Arrived) -> None:
        """Take the kernel's word."""
        record = self._find(stream.id, event.turn)
        if record is None:
            return
        if event.ear == "sent":
            record.ear = "sent"
            return
        record.ear = "kernel"
        t = event.t - event.ago_ms / 1000
        record.retrans += event.retrans
        record.closed_ms += event.window_ms
        record.waiting = max(record.waiting, event.waiting)
        if event.paused_ms:
            record.note_pause(event.t, event.paused_ms)
        more_ms = event.ms - record.arrived_ms
        if more_ms <= 0:
            return
        if record.rtt_ms is None and record.asked_t != NEVER:
            least_ms = event.least_rtt_ms if event.least_rtt_ms is not None else stream.least_path_ms or 0.0
            record.rtt_ms = (t - record.asked_t) * 1000 + least_ms / 2
        piece = add(record.arrived, t, more_ms)
        record.arrived_ms = event.ms
        piece.window_ms += record.closed_ms
        record.closed_ms = 0.0

    def reported(self, stream: Stream, turn: Turn, underrun_ms: float) -> None:
        """Take the word of the client's player that it had nothing to play for so long."""
        record = self._find(stream.id, stream.turn if turn is None else turn)
        if record:
            record.underrun_ms = (record.underrun_ms or 0.0) + underrun_ms

    def timed(self, stream: Stream, turn: Turn, rtt_ms: float) -> None:
        """Take the client's word on how long the answer took."""
        record = self._find(stream.id, stream.turn if turn is None else turn)
        if record:
            record.client_rtt_ms = rtt_ms

    def returned(self, stream: Stream, t: float) -> None:
        """Take that the client came back, and its turn goes on."""
        for record in self._open.get(stream.id, ()):
            if record.over_t == NEVER:
                record.cuts = [*record.cuts[-7:], t]
        if stream.id in self._slides:
            self._slides[stream.id].returned_t = t

    def stated(self, stream: Stream, t: float, drift_ms: float) -> None:
        """Take a drift that the server stated."""
        slides = self._slides
        slide = slides.get(stream.id)
        if slide is None:
            slide = slides[stream.id] = Slide(drift_ms, camera_ms=drift_ms)
            if len(slides) > OPEN:
                del slides[next(iter(slides))]
        more_ms, slide.drift_ms = drift_ms - slide.drift_ms, drift_ms
        if abs(more_ms) <= JUMP_MS:
            slide.camera_ms += more_ms
        elif 0 <= t - slide.returned_t <= RETURN_S:
            slide.cut_ms += more_ms
        else:
            slide.timestamps_ms += more_ms
        record = self._find(stream.id, stream.turn)
        if record and abs(drift_ms) > abs(record.skew_ms):
            record.skew_ms = drift_ms
            parts = {"camera": slide.camera_ms, "timestamps": slide.timestamps_ms, "cut": slide.cut_ms}
            record.skew_parts = {
                cause: abs(ms)
                for cause, ms in parts.items()
                if ms and copysign(1, ms) == copysign(1, drift_ms)
            }

    def ended(self, stream: Stream, turn: Turn, t: float, reason: str, chars: int | None = None) -> None:
        """Take that the server is done with a turn."""
        record = self._find(stream.id, turn)
        if record is None or record.ended_t != NEVER:
            return
        record.ended_t, record.outcome, record.chars = t, outcome_of(reason), chars
        left = self._answered()
        for other in left:
            other.note_others(t, len(left) - 1)
        if record.sent_t == NEVER:
            record.over_t = t

    def heard(self, stream: Stream, *, away: bool) -> None:
        """Take that the playback of the stream's turn is over, of a listener who is there or `away`."""
        record = self._find(stream.id, stream.turn)
        if record is None or record.over_t != NEVER:
            return
        player = stream.player
        record.over_t = max(stream.last_t, player.end_t)
        # The times of a turn in which the clock was set cannot be laid beside each other.
        record.heard = not away and (record.ahead_s is None or abs(stream.ahead - record.ahead_s) < SET_S)
        if not stream.stated and stream.picture.seen:
            skew_ms = -stream.picture.slope * max(0.0, player.end_t - player.start_t)
            record.skew_ms, record.skew_parts = skew_ms, {"camera": abs(skew_ms)}

    def gone(self, stream: Stream) -> None:
        """Take that a stream is no more: its turns that are open have no verdict."""
        for record in list(self._open.get(stream.id, ())):
            if record.ended_t == NEVER:
                self.ended(stream, record.turn, stream.last_t, "abandoned")
        self._slides.pop(stream.id, None)

    def advance(self, now: float) -> None:
        """Judge the turns that were over LATE_WORD_S before now, in the order in which they were over."""
        due = [
            (record.over_t, stream_id, record)
            for stream_id, own in self._open.items()
            for record in own
            if record.over_t != NEVER != record.ended_t
            and now >= max(record.over_t, record.ended_t) + LATE_WORD_S
        ]
        for _, stream_id, record in sorted(due, key=lambda found: found[0]):
            self._drop(stream_id, record)
            self._judge(stream_id, record)

    def _judge(self, stream_id: str, record: Record) -> None:
        if not is_judged(record):
            return
        verdicts = judge(record, self._terms._replace(usual=self._usual(record)))
        self._found(Judged(stream_id, record, verdicts))
        if (
            not verdicts
            and record.alone
            and record.outcome == "completed"
            and not 0 < record.nth <= WARM_TURNS
        ):
            usual = usual_of(record)
            if usual:
                known = self._good.setdefault(self._key(record), [])
                known.append(usual)
                del known[:-USUAL]

    @staticmethod
    def _key(record: Record) -> str:
        return f"{record.kind}{'+text' if record.text_t != NEVER else ''}"

    def _usual(self, record: Record) -> Usual:
        known = self._good.get(self._key(record), [])
        if len(known) < FEWEST:
            return self._terms.usual
        thinking, voice, network = (median(values) for values in list(zip(*known, strict=True))[:3])
        paces = [usual.pace for usual in known if usual.pace]
        return Usual(thinking, voice, network, median(paces) if len(paces) >= FEWEST / 4 else 0.0)
