"""The stream table: live streams, their slots, turns and curves. Pure: time comes in events or as an argument."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from math import isinf
from types import MappingProxyType
from typing import Any

from omniwatch import events
from omniwatch.core.answers import Lateness
from omniwatch.core.drift import Player
from omniwatch.core.ear import Ear
from omniwatch.core.hearing import Hearing
from omniwatch.core.integrity import is_corrupt
from omniwatch.core.picture_clock import PictureClock
from omniwatch.core.state import State
from omniwatch.core.stream import TURNS_KEPT, Pending, Stream
from omniwatch.core.totals import CALLED, FAULTS, NOT_OURS, RESUME_RESULTS, Totals, bounded, outcome_of
from omniwatch.core.trend import Trend
from omniwatch.core.turns import JUMP_MS, Turns, TurnsState
from omniwatch.frames import ID_MASK, distance
from omniwatch.settings import Settings
from omniwatch.settings.histograms import INTERRUPTION_EDGES, RTT_EDGES

TRACKED_PER_SLOT = 16
"""Streams followed for the counters' sake, as a multiple of those that have series: what bounds memory."""
CLOCK_STEP_S = 5.0
"""Events out of order by more than this mean that the server's clock was set back."""
STEP_S = 0.5
"""What the wall clock gains or loses on the monotonic one between two events without having been set: reading them takes time."""
GUESSES = ("framework", "model")
"""Sources of a client's report that do not replace the model."""


class StreamTable:
    """Live streams and the totals over all that ever were. Feed it events in the order they were read."""

    def __init__(
        self, settings: Settings, state: State | None = None, turns: TurnsState | None = None
    ) -> None:
        self.state = state or State(Totals.empty(settings.alerts.drift_page_ms))
        self.turns = Turns(self.state.totals, turns or TurnsState())
        self.configure(settings)
        self._handlers: dict[type[Any], Callable[[Stream, Any], None]] = {
            events.StreamStart: self._stream_start,
            events.Video: self._video,
            events.TurnStart: self._turn_start,
            events.Audio: self._audio,
            events.Played: self._played,
            events.Arrived: self._arrived,
            events.Text: self._text,
            events.Underrun: self._underrun,
            events.Interrupt: self._interrupt,
            events.Fault: self._fault,
            events.TurnEnd: self._turn_end,
            events.Rtt: self._rtt,
            events.Realign: self._realign,
            events.Rtx: self._rtx,
            events.Resume: self._resume,
            events.StreamEnd: self._stream_end,
        }

    def configure(self, settings: Settings) -> None:
        """Take new settings; a new page threshold begins the drift histograms anew, whose edges hold it."""
        self.settings = settings
        self._stale_s = settings.streams.stale_after_s
        self._away_s = settings.streams.away_after_s
        self._buffer_s = settings.streams.playout_buffer_ms / 1000
        self._codebook_size = 1 << settings.streams.codebook_bits
        self._frame_ms = settings.frames.frame_ms
        alerts = settings.alerts
        self._lateness = Lateness.of(
            alerts.rtt_page_ms,
            alerts.rtt_for_s,
            alerts.rtt_answers,
            evaluation_s=alerts.evaluation_interval_s,
            scrape_s=alerts.scrape_interval_s,
        )
        self._keep_drift_s = max(
            alerts.drift_for_s - alerts.evaluation_interval_s - alerts.scrape_interval_s,
            alerts.scrape_interval_s,
        )
        fresh = Totals.empty(alerts.drift_page_ms)
        totals = self.totals = self.state.totals
        if totals.drift_edges != fresh.drift_edges:
            totals.drift_edges = fresh.drift_edges
            totals.codec_drift_abs, totals.turn_drift_worst = fresh.codec_drift_abs, fresh.turn_drift_worst
        self._drift_edges = fresh.drift_edges
        self._hearing = Hearing(totals, self._lateness)
        self._ear = Ear(self.state, self._hearing, self._buffer_s)
        self.turns.configure(settings)
        self._takes_at = self.turns.takes_at

    @property
    def streams(self) -> list[Stream]:
        """The live streams, those with a slot first, by slot."""
        return sorted(self.state.streams.values(), key=lambda s: (s.slot < 0, s.slot, s.opened_t))

    def apply(self, event: events.Event) -> None:
        """Take one event."""
        self.apply_all((event,))

    def apply_all(self, batch: Iterable[events.Event], source: str = "") -> None:
        """Take events of one source in their order."""
        live, handlers, stale_s = self.state.streams, self._handlers, self._stale_s
        fore_s, aft_s, back_s = STEP_S, -STEP_S, -CLOCK_STEP_S
        for event in batch:
            t = event.t
            stream = live.get(event.stream)
            if stream is None:
                stream = self._open(event)
            elif (m := event.m) is not None and not aft_s < t - m - stream.ahead < fore_s:
                stream.follow_clock(t - m)
                if stream.closing or t - stream.last_t > stale_s:
                    stream = self._take_up_again(stream, event)
            elif stream.closing or not back_s < t - stream.last_t <= stale_s:
                stream = self._take_up_again(stream, event)
            stream.last_t = t
            stream.source = source
            handlers[type(event)](stream, event)

    def advance(self, now: float, behind: Mapping[str, float] = MappingProxyType({})) -> None:
        """Let time pass: playbacks end, streams that ended or went stale leave.

        `behind` has, for each source with more to read, the time of its newest event: that is as far as its streams get.
        """
        for stream in list(self.state.streams.values()):
            stream_now = min(now, behind.get(stream.source, now))
            if stream.speaking:
                self.turns.ahead(stream, stream_now)
            if stream.player.kernel:
                self._ear.wait_for_word(stream, stream_now)
            self._end_playback_by(stream, stream_now)
            if stream_now - stream.last_t > self._stale_s or (stream.closing and not stream.speaking):
                self._remove(stream)
        self.turns.advance(min(now, *behind.values()) if behind else now)

    def clock_set(self, by_s: float, *, in_order: bool) -> None:
        """Take note that the wall clock was set while live streams were followed.

        Their times move with it. Where events from before are still unread (not `in_order`), a stream whose writer gives no
        monotonic time cannot be placed in time. What it is in the middle of is then counted, and not measured.
        """
        for stream in self.state.streams.values():
            if not isinf(stream.ahead):
                stream.follow_clock(stream.ahead + by_s)
            elif in_order:
                stream.set_back(-by_s)
            else:
                stream.clock_set = True
                self._forget_course(stream, stream.last_t)

    def drift_ms(self, stream: Stream, now: float) -> float | None:
        """Return the drift that is shown of a stream at `now`; None while there is none, or none that anybody hears."""
        return None if self.is_away(stream, now) else stream.drift_at(now, self._keep_drift_s)

    def cumulative_ms(self, stream: Stream, now: float) -> float | None:
        """Return the same had nothing ever been realigned."""
        return None if self.is_away(stream, now) else stream.cumulative_at(now, self._keep_drift_s)

    def rtt_ms(self, stream: Stream, now: float) -> float | None:
        """Return the round trip that is shown of a stream at `now`; None while there is none."""
        return None if self.is_away(stream, now) else stream.answers.shown_ms(now, self._lateness)

    def is_away(self, stream: Stream, now: float) -> bool:
        """Whether a stream's listener has had nothing of what was sent for `streams.away_after_s`."""
        return stream.is_away(now, self._away_s)

    def _open(self, event: events.Event) -> Stream:
        live = self.state.streams
        # They are counted or passed over, and open no stream.
        if isinstance(event, (events.Resume, events.Rtx, events.Arrived)):
            return Stream(event.stream, -1, event.t, event.t)
        if len(live) >= self.settings.streams.max_streams * TRACKED_PER_SLOT:
            self._remove(min(live.values(), key=lambda s: s.last_t))
            self.totals.streams_dropped += 1
        stream = live[event.stream] = Stream(event.stream, self._free_slot(), event.t, event.t)
        if event.m is not None:
            stream.ahead = event.t - event.m
        return stream

    def _free_slot(self) -> int:
        taken = {stream.slot for stream in self.state.streams.values()}
        return next((slot for slot in range(self.settings.streams.max_streams) if slot not in taken), -1)

    def _take_slot(self, stream: Stream) -> None:
        """Give a listener who is spoken to, or waits for it, the slot of one who is not: of those silent longest."""
        idle = [s for s in self.state.streams.values() if s.slot >= 0 and not (s.asked or s.speaking)]
        if idle:
            longest = min(idle, key=lambda s: (not s.closing, s.last_t))
            stream.slot, longest.slot = longest.slot, -1

    def _take_up_again(self, stream: Stream, event: events.Event) -> Stream:
        """A known id after its end, after a silence too long, or after the clock was set back."""
        if event.t <= stream.last_t - CLOCK_STEP_S:
            # What was sent before the step cannot be placed on the new clock: the turn goes on with a new player.
            self._forget_course(stream, event.t)
            stream.asked_t -= stream.last_t - event.t
            stream.drift_t -= stream.last_t - event.t
            stream.answers.set_back(stream.last_t - event.t)
            return stream
        if stream.closing and not isinstance(event, events.StreamStart):
            return stream
        self._remove(stream)
        return self._open(event)

    def _remove(self, stream: Stream) -> None:
        self._give_up_turns(stream, "abandoned")
        self._count_unheard(stream)
        if stream.speaking:
            self._playback_over(stream)
        self.turns.gone(stream)
        del self.state.streams[stream.id]
        if stream.slot >= 0:
            waiting = [s for s in self.state.streams.values() if s.slot < 0]
            if waiting:
                min(waiting, key=lambda s: (not (s.asked or s.speaking), s.opened_t)).slot = stream.slot

    def _forget_course(self, stream: Stream, t: float) -> None:
        """Begin the player and the curves anew at t: the clock was set, and what came before cannot be placed on it."""
        stream.player = stream.player.anew(t)
        stream.picture = PictureClock(slope=stream.picture.slope)
        stream.trend = Trend()

    def _give_up_turns(self, stream: Stream, outcome: str) -> None:
        self._count_stale(stream)
        self._count_early(stream)
        self.totals.turns[outcome] += stream.asked + stream.turn_open
        stream.asked = stream.turn_open = False

    def _playback_over(self, stream: Stream) -> None:
        stream.speaking = False
        # Nothing is counted against a listener who was away and did not come back.
        away = stream.is_away(stream.last_t, self._away_s)
        if away:
            stream.worst_ms = stream.worst_heard_ms
        elif stream.counts_underruns and stream.player.reported and not stream.is_cut_off:
            # What the client had no time to say, or no network.
            self._hearing.count_underrun(stream, stream.player.gaps_s)
        self.turns.heard(stream, away=away)
        self.totals.turn_drift_worst.observe(stream.worst_ms / 1000, self.totals.drift_edges)

    def _end_playback_by(self, stream: Stream, t: float) -> None:
        player = stream.player
        if stream.speaking and not stream.turn_open and t >= player.end_t and not player.under_way:
            self._playback_over(stream)

    def _sample_model(self, stream: Stream, t: float) -> None:
        """Sample a modelled drift at t: as of when it is known, and only while anybody hears it."""
        player, known_t = stream.player, t
        if player.kernel:
            if stream.is_away(t, self._away_s):
                return
            known_t = stream.known_until(t)
        if 0 <= player.start_t <= known_t:
            self._sample(stream, t, stream.modelled(known_t))

    def _sample(self, stream: Stream, t: float, drift_ms: float) -> None:
        shifted_ms = stream.shifted_ms
        stream.drift_ms = drift_ms
        stream.drift_t = t
        stream.sampled_shift_ms = shifted_ms
        size = drift_ms if drift_ms >= 0 else -drift_ms
        if size > stream.worst_ms:
            stream.worst_ms = size
        histogram = self.totals.codec_drift_abs
        size /= 1000
        histogram.counts[bisect_left(self._drift_edges, size)] += 1
        histogram.sum += size
        trend = stream.trend
        if t >= trend.full_t:
            trend.close(t)
        trend.filling.append(drift_ms + shifted_ms)

    def _stream_start(self, stream: Stream, event: events.StreamStart) -> None:
        if event.peer != stream.peer:
            # Another connection has a path of its own, not known yet.
            stream.path_ms = stream.least_path_ms = stream.congestion = None
            stream.player.grew_t = max(stream.player.grew_t, event.t)
        stream.peer, stream.kind = event.peer, event.kind

    def _video(self, stream: Stream, event: events.Video) -> None:
        t = event.t
        stream.picture.frame(t, event.pts_ms)
        if not stream.speaking:
            return
        player = stream.player
        if player.kernel:
            self._ear.wait_for_word(stream, t)
        if not stream.turn_open and stream.is_over(t):
            self._playback_over(stream)
        elif not stream.stated:
            self._sample_model(stream, t)

    def _turn_start(self, stream: Stream, event: events.TurnStart) -> None:
        self.totals.turns["abandoned"] += stream.asked
        self._count_early(stream)
        self._count_unheard(stream)
        stream.asked, stream.asked_turn, stream.asked_t = True, event.turn, event.t
        stream.asks_anew, stream.spoke_up = stream.spoke_up, False
        stream.clock_set = False
        stream.by_kernel = event.ear == "kernel"
        if stream.slot < 0:
            self._take_slot(stream)
        self.turns.asked(stream, event)

    # Hot path, taken for every second event: deliberately inlined, see tests/bench.
    def _audio(self, stream: Stream, event: events.Audio) -> None:
        totals, t, dur_ms, turn = self.totals, event.t, event.dur_ms, event.turn
        begins, unheard = False, True
        if stream.asked or not stream.turn_open or (turn != stream.turn and turn is not None):
            begins = self._begins_turn(stream, event)
            if begins:
                self._begin_speech(stream, event)
            unheard = turn is None or turn == stream.turn
        count = 1 if dur_ms == self._frame_ms else max(1, round(dur_ms / self._frame_ms))
        dur_s = dur_ms / 1000
        totals.audio_frames += count
        totals.audio_seconds += dur_s
        frame_id = event.frame_id
        if frame_id is not None:
            watch = stream.frames
            if frame_id == watch.next_id:
                watch.next_id = (frame_id + count) & ID_MASK
            elif not self._observe_ids(stream, frame_id, count, begins):
                unheard = False
        codes = event.codes
        if codes is not None and is_corrupt(codes, event.checksum, self._codebook_size):
            totals.audio_frames_corrupt += 1
        mask = event.expert_mask
        if mask is not None:
            totals.expert_masks[mask] += count
        if not unheard:
            return
        if stream.is_interrupted:
            stream.stale_t = t
            if stream.is_cut_off:
                return
        handed = stream.handed
        handed.append(event)
        player, starved_s = stream.player, 0.0
        if player.kernel:
            self._ear.sent(stream, t, dur_ms)
        elif player.start_t >= 0 and t <= player.end_t:
            player.end_t += dur_s
            player.sent_ms += dur_ms
        else:
            starved_s = player.send(t, dur_ms, self._buffer_s)
            self._hearing.starved(stream, starved_s)
        if len(handed) >= self._takes_at:
            self.turns.take(stream)
        pts_ms, picture_ms = event.pts_ms, event.video_pts_ms
        if pts_ms is not None and picture_ms is not None:
            drift_ms = pts_ms - picture_ms
            if not stream.stated or not -JUMP_MS <= drift_ms - (stream.drift_ms or 0.0) <= JUMP_MS:
                self.turns.jumped(stream, t, drift_ms)
                stream.stated = True
            self._sample(stream, t, drift_ms)
        elif not stream.stated and not player.kernel and (starved_s or not stream.has_picture(t)):
            # A picture samples the drift with each frame; the turn may be over before the next one.
            self._sample_model(stream, t)

    def _begins_turn(self, stream: Stream, event: events.Audio) -> bool:
        """Whether this audio is the first of a turn (and not more of this one, or the tail of one that was cut off)."""
        if event.turn is None:
            return stream.asked or not stream.turn_open
        if stream.asked and event.turn == stream.asked_turn:
            return True
        return event.turn not in stream.begun

    def _begin_speech(self, stream: Stream, event: events.Audio) -> None:
        turn = stream.asked_turn if event.turn is None and stream.asked else event.turn
        self.turns.take(stream)
        cut_off = stream.turn_open
        if cut_off:
            self.totals.turns["interrupted"] += 1
            self.turns.ended(stream, stream.turn, event.t, "interrupted")
        self._count_stale(stream)
        self._count_unheard(stream)
        if stream.speaking:
            self._playback_over(stream)
        stream.is_interrupted = stream.is_cut_off = False
        if stream.asked and turn == stream.asked_turn:
            stream.asked = False
            if stream.early_t is not None:
                # All that is said of it is stale.
                stream.is_interrupted, stream.interrupt_t, stream.early_t = True, stream.early_t, None
            pending = Pending(turn, stream.asked_t, event.t, stream.asks_anew)
            stream.asks_anew = False
            if stream.by_kernel:
                self._ear.await_first_speech(stream, pending)
            else:
                self._hearing.answered(stream, event.t, pending, event.t, stream.path_ms or 0.0)
        stream.turn, stream.begun = turn, [turn, *stream.begun[: TURNS_KEPT - 1 if cut_off else 1]]
        stream.speaking = stream.turn_open = True
        if stream.slot < 0:
            self._take_slot(stream)
        stream.player = Player(kernel=stream.by_kernel, word_t=event.t, grew_t=event.t)
        stream.worst_ms = stream.worst_heard_ms = 0.0
        stream.resent = 0
        self.turns.answered(stream, event)
        if not stream.stated:
            stream.trend, stream.drift_ms = Trend(), 0.0
            stream.shifted_ms = stream.sampled_shift_ms = 0.0

    def _observe_ids(self, stream: Stream, frame_id: int, count: int, begins: bool) -> bool:
        """Take ids that are not just the next ones; return whether any of these frames was not heard before."""
        watch, totals = stream.frames, self.totals
        if watch.next_id < 0 or (begins and distance(watch.next_id, frame_id) < 0):
            watch.restart(frame_id, count)
            return True
        found = watch.observe(frame_id, count, self.settings.frames)
        totals.audio_frames_lost += found.lost
        totals.audio_frames_duplicate += found.duplicate
        totals.audio_frames_late += found.late
        totals.audio_loss_runs += found.loss_runs
        if found.epoch:
            stream.trend = Trend()
        return found.duplicate < count

    def _played(self, stream: Stream, event: events.Played) -> None:
        if self._is_of_this_turn(stream, event.turn):
            if event.source not in GUESSES:
                stream.player.heard(event.t, event.played_ms)
            elif stream.is_interrupted and not stream.is_cut_off:
                # The client cut the answer off there: its listener hears no more of it.
                if event.source == "framework" and stream.unheard_s is not None:
                    stream.unheard_s = max(0.0, stream.sent_then_ms - event.played_ms) / 1000
                self._count_unheard(stream)
                self._playback_over(stream)
                stream.is_cut_off, stream.player = True, Player(end_t=event.t)

    def _interrupt(self, stream: Stream, event: events.Interrupt) -> None:
        t, sent_ms = event.t, stream.player.sent_ms
        self._end_playback_by(stream, t)
        if event.turn == stream.turn and stream.speaking and not stream.is_interrupted:
            stream.is_interrupted, stream.interrupt_t, stream.stale_t = True, t, t
            stream.sent_then_ms = sent_ms
            stream.unheard_s = max(0.0, sent_ms - stream.player.position_ms(t)) / 1000
            stream.asks_anew |= stream.asked
            stream.spoke_up = not stream.asks_anew
            if not stream.turn_open:
                # The server had ended it.
                self.totals.interruption_stale.observe(0.0, INTERRUPTION_EDGES)
        elif stream.asked and event.turn == stream.asked_turn and stream.early_t is None:
            stream.early_t, stream.spoke_up = t, True
            self.totals.interruption_unheard.observe(0.0, INTERRUPTION_EDGES)

    def _count_stale(self, stream: Stream) -> None:
        """Count how long a turn that ends went on after the user spoke up."""
        if stream.turn_open and stream.is_interrupted:
            stale_s = max(0.0, stream.stale_t - stream.interrupt_t)
            self.totals.interruption_stale.observe(stale_s, INTERRUPTION_EDGES)

    def _count_early(self, stream: Stream) -> None:
        """Count that a turn stays without speech during which the user spoke up."""
        if stream.early_t is not None:
            stream.early_t = None
            self.totals.interruption_stale.observe(0.0, INTERRUPTION_EDGES)

    def _count_unheard(self, stream: Stream) -> None:
        """Count what was not heard when the user spoke up, once the client had time to say so itself."""
        if stream.unheard_s is not None:
            self.totals.interruption_unheard.observe(stream.unheard_s, INTERRUPTION_EDGES)
            stream.unheard_s = None

    def _underrun(self, stream: Stream, event: events.Underrun) -> None:
        if event.source in GUESSES:
            return
        self.turns.reported(stream, event)
        if self._is_of_this_turn(stream, event.turn):
            player = stream.player
            counted_s = 0.0 if stream.counts_underruns and player.reported else player.gaps_s
            self._hearing.count_underrun(stream, max(0.0, event.ms / 1000 - counted_s))
            player.starve(event.t, event.ms / 1000)
            stream.counts_underruns = True

    def _is_of_this_turn(self, stream: Stream, turn: events.Turn | None) -> bool:
        return stream.speaking and turn in (None, stream.turn) and stream.player.start_t >= 0

    def _arrived(self, stream: Stream, event: events.Arrived) -> None:
        t = event.t
        self._ear.arrived(stream, event)
        self.turns.arrived(stream, event)
        if not stream.stated and stream.speaking and not stream.has_picture(t):
            self._sample_model(stream, t)

    def _passed_over(self, stream: Stream, event: events.Event) -> None:
        """Take an event that no figure is made of."""

    def _text(self, stream: Stream, event: events.Text) -> None:
        self.turns.text(stream, event)

    def _fault(self, stream: Stream, event: events.Fault) -> None:
        self.totals.session_faults[bounded(event.code, FAULTS)] += 1

    def _turn_end(self, stream: Stream, event: events.TurnEnd) -> None:
        self.turns.ended(stream, event.turn, event.t, event.reason, event)
        outcome = outcome_of(event.reason)
        if stream.turn_open and event.turn == stream.turn:
            self._count_stale(stream)
            stream.turn_open = False
            self.totals.turns[outcome] += 1
            player = stream.player
            if player.end_t and not player.under_way:
                self._hearing.starved(stream, max(0.0, event.t - player.end_t))
            self._end_playback_by(stream, event.t)
        elif stream.asked and event.turn == stream.asked_turn:
            stream.asked = False
            self._count_early(stream)
            if event.reason != CALLED:
                self.totals.turns["no_audio" if outcome == "completed" else outcome] += 1

    def _rtt(self, stream: Stream, event: events.Rtt) -> None:
        self.totals.token_rtt["client"].observe(event.rtt_ms / 1000, RTT_EDGES)
        self.turns.timed(stream, event)
        # A report of a turn before the newest is too late: the server's estimate has counted.
        if event.turn is None or event.turn not in stream.begun[1:]:
            stream.answers.report(event.t, event.rtt_ms, event.turn, self._lateness)

    def _realign(self, stream: Stream, event: events.Realign) -> None:
        self.totals.codec_realign += 1
        stream.realign(event.t, event.shift_ms)

    def _rtx(self, stream: Stream, event: events.Rtx) -> None:
        self.totals.count_rtx(event.result)

    def _resume(self, stream: Stream, event: events.Resume) -> None:
        self.totals.count_resume(event.result, event.replayed or 0, event.extra_ms, again=bool(event.again))
        if event.result not in NOT_OURS and not event.again:
            stream.resumed_t, stream.resumed = event.t, bounded(event.result, RESUME_RESULTS)
        if event.result in ("hit", "replay"):
            stream.player.grew_t = event.t
            self.turns.returned(stream, event.t)

    def _stream_end(self, stream: Stream, event: events.StreamEnd) -> None:
        self._give_up_turns(stream, "abandoned")
        stream.closing = True
        if stream.speaking and stream.player.under_way:
            self._playback_over(stream)
        self._end_playback_by(stream, event.t)
