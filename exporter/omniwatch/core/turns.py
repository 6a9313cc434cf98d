"""Keep a record of each turn, and judge it when its playback is over. Pure: time comes in events or as an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import copysign
from statistics import median
from typing import NamedTuple

import msgspec

from omniwatch import events
from omniwatch.core.answers import Turn
from omniwatch.core.record import NEVER, Arrival, Record, add
from omniwatch.core.samples import Samples
from omniwatch.core.stream import TURNS_KEPT, Stream
from omniwatch.core.totals import Totals, outcome_of
from omniwatch.core.usual import Usual, usual_of
from omniwatch.core.verdict import RETURN_S, WARM_TURNS, Terms, Verdict, is_judged, judge
from omniwatch.settings import Settings

LATE_WORD_S = 5.0
"""A client's report counts so long after its turn was heard."""
GRACE_S = 1.0
"""Seconds in which what was written is read: a turn is judged so long after the last report that counts."""
CLOCK_BACK_S = 60.0
"""A turn that ends by more than this after now was timed before the clock was set back: it is judged at once."""
USUAL = 200
"""Good turns of a kind that make what is usual."""
FEWEST = 20
"""Good turns before which the settings say what is usual."""
LONG = 0.95
"""The usual chunk is this quantile of good turns' longest chunks: a high one, since short turns end in a chunk cut off."""
OPEN = 128
"""Records of turns that are not judged yet, over all streams; beyond it the oldest is dropped."""
OPEN_BYTES = 32 * 1024
"""Most bytes of such records that a checkpoint keeps, the newest."""
TAKEN = 64
"""Chunks of speech that a record takes at once: one by one they would cost the sidecar a tenth of its time."""
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
LEAST_CHARS = 20
"""Characters of text from which on the length of its speech is judged."""
CJK, LATIN = 0.9, 0.1
"""Shares of Chinese, Japanese and Korean characters: from CJK on their limits hold, up to LATIN Latin's, between them the wider."""
AHEAD_S = 60.0
"""Seconds over which the most that speech ran ahead is shown."""


@dataclass(slots=True)
class Slide:
    """A stated drift's jumps so far, in ms: `cut_ms` soon after a client's return, `jumped_ms` at any other time."""

    jumped_ms: float = 0.0
    cut_ms: float = 0.0
    returned_t: float = NEVER


@dataclass(slots=True)
class TurnsState:
    """What a restart must not lose."""

    number: int = 0
    good: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    """What good turns took, by kind of stream, the oldest first: a `Usual` in ms, its pace in ms for each second of speech.

    An older checkpoint has fewer numbers: what they lack is not known.
    """
    writers: dict[str, int] = field(default_factory=dict)
    """Turns of each writer that was new when it was first seen; -1 for one that was not."""
    open: dict[str, list[Record]] = field(default_factory=dict)
    """By stream, the oldest first."""
    slides: dict[str, Slide] = field(default_factory=dict)


class Judged(NamedTuple):
    """A turn that is over."""

    stream: str
    record: Record
    verdicts: list[Verdict]


def terms_of(settings: Settings) -> Terms:
    """Return what is bad by the settings, and what is usual before good turns say so."""
    turns = settings.turns
    return Terms(
        late_ms=settings.alerts.rtt_page_ms,
        skewed_ms=settings.alerts.drift_page_ms,
        buffer_s=settings.streams.playout_buffer_ms / 1000,
        client_buffer_ms=settings.streams.client_buffer_ms or None,
        usual=Usual(*(ms / 1000 for ms in (turns.thinking_ms, turns.voice_ms, turns.network_ms))),
    )


class Turns:
    """The records of the turns under way, and the verdicts of those that are over. `found` takes each turn that was judged."""

    def __init__(self, totals: Totals, state: TurnsState) -> None:
        self.state = state
        self.found: Callable[[Judged], None] = lambda judged: None
        self.takes_at = TAKEN
        """Chunks of a stream's speech that wait, from which on they are taken."""
        self.samples = Samples()
        self._totals = totals
        self._ahead: tuple[float, float, float] = (NEVER, 0.0, 0.0)
        """Begin of the present AHEAD_S, the most in it, and in those before."""

    def configure(self, settings: Settings) -> None:
        """Take new settings."""
        self._settings = settings.turns
        self._terms = terms_of(settings)
        self.takes_at = 1 if self._terms.client_buffer_ms else TAKEN

    def kept(self) -> TurnsState:
        """Return what a checkpoint keeps: of the records under way the newest, within OPEN_BYTES."""
        left, kept = OPEN_BYTES, dict[str, list[Record]]()
        for stream_id, record in sorted(self._all(), key=lambda pair: -pair[1].number):
            left -= len(msgspec.msgpack.encode(record)) + len(stream_id)
            if left < 0:
                break
            kept.setdefault(stream_id, []).insert(0, record)
        state = self.state
        return TurnsState(state.number, state.good, state.writers, kept, state.slides)

    def _all(self) -> Iterator[tuple[str, Record]]:
        return ((stream_id, record) for stream_id, own in self.state.open.items() for record in own)

    def asked(self, stream: Stream, event: events.TurnStart) -> None:
        """Take a question."""
        for before in list(self.state.open.get(stream.id, ())):
            if before.sent_t == NEVER:
                self.ended(stream, before.turn, event.t, "abandoned")
        record = self._begin(stream, event.turn, event)
        record.asked_t = event.t
        record.ear = event.ear or "sent"
        record.nth = self._nth(event)

    def _nth(self, event: events.TurnStart) -> int:
        writers, writer = self.state.writers, event.w
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
        t, state = event.t, self.state
        state.number += 1
        answered = self._answered()
        for other in answered:
            other.note_others(t, len(answered))
        kind = stream.kind if stream.kind in KINDS else "other"
        record = Record(
            turn=turn, number=state.number, slot=stream.slot, kind=kind or "other", alone=not answered
        )
        record.note_others(t, len(answered))
        if event.m is not None:
            record.ahead_s = event.t - event.m
        own = state.open.setdefault(stream.id, [])
        own.append(record)
        del own[:-TURNS_KEPT]
        if sum(map(len, state.open.values())) > OPEN:
            oldest = min(state.open, key=lambda stream_id: state.open[stream_id][0].number)
            self._drop(oldest, state.open[oldest][0])
        return record

    def _answered(self) -> list[Record]:
        return [record for _, record in self._all() if record.ended_t == NEVER]

    @property
    def speaking(self) -> int:
        """How many turns are being answered."""
        return len(self._answered())

    def _drop(self, stream_id: str, record: Record) -> None:
        own = self.state.open[stream_id]
        own.remove(record)
        if not own:
            del self.state.open[stream_id]

    def _find(self, stream_id: str, turn: Turn) -> Record | None:
        for record in reversed(self.state.open.get(stream_id, ())):
            if record.turn == turn:
                return record
        return None

    def text(self, stream: Stream, event: events.Text) -> None:
        """Take that the answer's text begins."""
        record = self._find(stream.id, event.turn)
        if record and record.text_t == NEVER:
            record.text_t = event.t

    def answered(self, stream: Stream, event: events.Audio) -> None:
        """Take the first speech of the stream's turn."""
        record = self._find(stream.id, stream.turn)
        if record is None:
            record = self._begin(stream, stream.turn, event)
            record.ear = "kernel" if stream.by_kernel else "sent"
        if record.sent_t == NEVER:
            record.sent_t, record.slot, record.first_ms = event.t, stream.slot, event.dur_ms

    def take(self, stream: Stream) -> None:
        """Take the speech of the stream's turn that was handed over since the last call."""
        handed = stream.handed
        record = self._find(stream.id, stream.turn) if handed else None
        if record is not None:
            sent_ms, silent_ms, chunk_ms = add(record.sent, handed)
            record.sent_ms += sent_ms
            record.chunk_ms = max(record.chunk_ms, chunk_ms)
            record.silent_ms += silent_ms
            if self._terms.client_buffer_ms:
                ahead_ms = record.sent_ms - stream.player.position_ms(handed[-1].t)
                record.ahead_ms = max(record.ahead_ms, ahead_ms)
        handed.clear()

    def ahead(self, stream: Stream, now: float) -> None:
        """Note how far what was handed over is ahead of what the stream's player has played."""
        player, (begin_t, most_s, before_s) = stream.player, self._ahead
        if now >= begin_t + AHEAD_S or now < begin_t:
            begin_t, most_s, before_s = now, 0.0, most_s if now < begin_t + 2 * AHEAD_S else 0.0
        under_way_s = (player.sent_ms - player.reached_ms) / 1000
        self._ahead = begin_t, max(most_s, max(0.0, player.end_t - now) + under_way_s), before_s

    def ahead_s(self, now: float) -> float:
        """Return by how much speech ran ahead of its playback at most, in the last AHEAD_S at least, in s."""
        begin_t, most_s, before_s = self._ahead
        if begin_t == NEVER or now >= begin_t + 2 * AHEAD_S:
            return 0.0
        return most_s if now >= begin_t + AHEAD_S else max(most_s, before_s)

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
        add(record.arrived, [Arrival(t, more_ms)])
        record.arrived_ms = event.ms
        record.arrived[-1].window_ms += record.closed_ms
        record.closed_ms = 0.0

    def reported(self, stream: Stream, event: events.Underrun) -> None:
        """Take the word of the client's player that it had nothing to play for so long."""
        record = self._find(stream.id, stream.turn if event.turn is None else event.turn)
        if record and _is_in_time(record, event.t):
            record.underrun_ms = (record.underrun_ms or 0.0) + event.ms

    def timed(self, stream: Stream, event: events.Rtt) -> None:
        """Take the client's word on how long the answer took."""
        record = self._find(stream.id, stream.turn if event.turn is None else event.turn)
        if record and _is_in_time(record, event.t):
            record.client_rtt_ms = event.rtt_ms

    def returned(self, stream: Stream, t: float) -> None:
        """Take that the client came back, and its turn goes on."""
        for record in self.state.open.get(stream.id, ()):
            if record.over_t == NEVER:
                record.cuts = [*record.cuts[-7:], t]
        if stream.id in self.state.slides:
            self.state.slides[stream.id].returned_t = t

    def jumped(self, stream: Stream, t: float, drift_ms: float) -> None:
        """Take a drift stated at t, before the stream has it: the stream's first, or one that jumped."""
        slides = self.state.slides
        record = self._find(stream.id, stream.turn)
        if record:
            self._note_skew(stream, record)
        if stream.id not in slides or not stream.stated:
            slides[stream.id] = Slide()
            if len(slides) > OPEN:
                del slides[next(iter(slides))]
            return
        slide, more_ms = slides[stream.id], drift_ms - (stream.drift_ms or 0.0)
        if 0 <= t - slide.returned_t <= RETURN_S:
            slide.cut_ms += more_ms
        else:
            slide.jumped_ms += more_ms

    def _note_skew(self, stream: Stream, record: Record) -> None:
        """Enter the turn's worst drift so far, split by what the drift had jumped by then."""
        slide = self.state.slides.get(stream.id)
        if slide is None or stream.worst_ms <= abs(record.skew_ms):
            return
        record.skew_ms = worst_ms = copysign(stream.worst_ms, stream.drift_ms or 0.0)
        camera_ms = worst_ms - slide.jumped_ms - slide.cut_ms
        parts = {"camera": camera_ms, "timestamps": slide.jumped_ms, "cut": slide.cut_ms}
        record.skew_parts = {cause: abs(ms) for cause, ms in parts.items() if ms * worst_ms > 0}

    def ended(
        self, stream: Stream, turn: Turn, t: float, reason: str, of: events.TurnEnd | None = None
    ) -> None:
        """Take that the server is done with a turn, by its own word (`of`) or not."""
        if turn == stream.turn:
            self.take(stream)
        record = self._find(stream.id, turn)
        if record is None or record.ended_t != NEVER:
            return
        record.ended_t, record.outcome = t, outcome_of(reason)
        if of is not None:
            record.chars, record.cjk = of.chars, of.cjk
        left = self._answered()
        for other in left:
            other.note_others(t, len(left) - 1)
        if record.sent_t == NEVER:
            record.over_t = t

    def heard(self, stream: Stream, *, away: bool) -> None:
        """Take that the playback of the stream's turn is over, of a listener who is there or `away`."""
        self.take(stream)
        record = self._find(stream.id, stream.turn)
        if record is None or record.over_t != NEVER:
            return
        self._conclude(stream, record)
        record.over_t = max(stream.last_t, stream.player.end_t)
        record.heard = record.heard and not away

    def _conclude(self, stream: Stream, record: Record) -> None:
        """Enter what is known of a turn's drift, and whether the clock was set in it."""
        # The times of a turn in which the clock was set cannot be laid beside each other.
        record.heard = record.ahead_s is None or abs(stream.ahead - record.ahead_s) < SET_S
        player = stream.player
        record.is_stated = stream.stated
        if stream.stated:
            self._note_skew(stream, record)
        elif stream.picture.seen:
            skew_ms = -stream.picture.slope * max(0.0, player.end_t - player.start_t)
            record.skew_ms, record.skew_parts = skew_ms, {"camera": abs(skew_ms)}

    def gone(self, stream: Stream) -> None:
        """Take that a stream is no more: its turns that are open have no verdict."""
        for record in list(self.state.open.get(stream.id, ())):
            if record.ended_t == NEVER:
                self.ended(stream, record.turn, stream.last_t, "abandoned")
        self.state.slides.pop(stream.id, None)

    def advance(self, now: float) -> None:
        """Judge the turns whose last report that counts would have been read by now, in the order in which they were over."""
        due = [
            (record.over_t, stream_id, record)
            for stream_id, record in self._all()
            if record.over_t != NEVER != record.ended_t
            and not _over_t(record) - CLOCK_BACK_S < now < _due_t(record)
        ]
        for _, stream_id, record in sorted(due, key=lambda found: found[0]):
            self._drop(stream_id, record)
            if is_judged(record):
                self._judge(stream_id, record)

    def so_far(self, stream: Stream, now: float) -> Verdict | None:
        """Return the verdict by now on the worst turn of a stream that is open, or not judged yet; None where all are well."""
        self.take(stream)
        found: list[Verdict] = []
        for record in self.state.open.get(stream.id, ()):
            seen = record
            if record.over_t == NEVER:
                seen = record.as_of(stream.known_until(now) if record.sent_t != NEVER else now)
                if record.turn == stream.turn:
                    self._conclude(stream, seen)
            if is_judged(seen):
                seen.note_device(self.samples.within(seen.began_t, seen.over_t))
                found += judge(seen, self._terms._replace(usual=self._usual(seen)))
        return max(found, key=lambda verdict: (verdict.cause != "unknown", verdict.excess_ms), default=None)

    def _judge(self, stream_id: str, record: Record) -> None:
        record.note_device(self.samples.within(record.began_t, record.over_t))
        verdicts = judge(record, self._terms._replace(usual=self._usual(record)))
        totals = self._totals
        totals.turns_judged += 1
        for verdict in verdicts:
            totals.turns_bad[verdict.symptom][verdict.cause] += 1
        self._judge_length(record)
        self.found(Judged(stream_id, record, verdicts))
        if (
            not verdicts
            and record.alone
            and record.outcome == "completed"
            and not 0 < record.nth <= WARM_TURNS
        ):
            usual = usual_of(record)
            if usual:
                known = self.state.good.setdefault(self._key(record), [])
                known.append(tuple(min(round(1000 * value), 2**31) for value in usual))
                del known[:-USUAL]

    def _judge_length(self, record: Record) -> None:
        chars, limits = record.chars or 0, self._settings
        if chars < LEAST_CHARS or record.outcome != "completed" or not record.sent_ms:
            return
        cjk = None if record.cjk is None else record.cjk / chars
        least_ms = limits.cjk_least_ms if cjk is not None and cjk >= CJK else limits.latin_least_ms
        most_ms = limits.latin_most_ms if cjk is not None and cjk <= LATIN else limits.cjk_most_ms
        if not chars * least_ms <= record.sent_ms <= chars * most_ms:
            self._totals.turns_odd_length["long" if record.sent_ms > chars * most_ms else "short"] += 1

    @staticmethod
    def _key(record: Record) -> str:
        return f"{record.kind}{'+text' if record.text_t != NEVER else ''}"

    def _usual(self, record: Record) -> Usual:
        known = self.state.good.get(self._key(record), [])
        # An older checkpoint has no chunks.
        chunks = sorted(turn[4] for turn in known if len(turn) > 5)
        chunk = first = 0.0
        if len(chunks) >= FEWEST / 4:
            chunk = chunks[int(LONG * len(chunks))] / 1000
            first = median(turn[5] for turn in known if len(turn) > 5) / 1000
        if len(known) < FEWEST:
            return self._terms.usual._replace(chunk=chunk, first=first)
        thinking, voice, network = (median(turn[n] for turn in known) / 1000 for n in range(3))
        paces = [turn[3] for turn in known if turn[3]]
        pace = median(paces) / 1000 if len(paces) >= FEWEST / 4 else 0.0
        return Usual(thinking, voice, network, pace, chunk, first)


def _over_t(record: Record) -> float:
    return max(record.over_t, record.ended_t)


def _due_t(record: Record) -> float:
    return _over_t(record) + LATE_WORD_S + GRACE_S


def _is_in_time(record: Record, t: float) -> bool:
    """Whether a report of the client's at t still counts."""
    return record.over_t == NEVER or t <= _over_t(record) + LATE_WORD_S
