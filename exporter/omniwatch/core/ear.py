"""The ear: what the server's kernel says of a listener's connection. Where it is silent, what is sent counts as heard."""

from __future__ import annotations

from typing import NamedTuple

from omniwatch import events
from omniwatch.core.answers import Turn
from omniwatch.core.hearing import Hearing
from omniwatch.core.state import State
from omniwatch.core.stream import TURNS_KEPT, Pending, Stream

WORD_S = 3.0
"""Seconds without `arrived` while speech is under way, after which a stream goes by what is sent."""


class Ear(NamedTuple):
    """Applies the kernel's word to the streams of a table."""

    state: State
    hearing: Hearing
    buffer_s: float
    """Seconds that a player holds back before it starts."""

    def await_first_speech(self, stream: Stream, pending: Pending) -> None:
        """Measure an answer when its first speech has arrived."""
        stream.pending = [*stream.pending[1 - TURNS_KEPT :], pending]

    def sent(self, stream: Stream, t: float, dur_ms: float) -> None:
        """Take speech that was sent at t, while the kernel says what arrives."""
        self.wait_for_word(stream, t)
        gap_s = stream.player.send(t, dur_ms, self.buffer_s)
        if gap_s:
            self.hearing.starved(stream, gap_s)

    def arrived(self, stream: Stream, event: events.Arrived) -> None:
        """Take the kernel's word of what has arrived."""
        t, ago_s = event.t, event.ago_ms / 1000
        if event.rtt_ms is not None:
            stream.path_ms = event.rtt_ms
            stream.least_path_ms = min(event.rtt_ms, stream.least_path_ms or event.rtt_ms)
        stream.congestion = event.congestion or stream.congestion
        if stream.speaking and event.turn == stream.turn:
            stream.resent += event.retrans
            player = stream.player
            self.wait_for_word(stream, t)
            gap_s = player.arrive(t, ago_s, event.ms, event.waiting, self.buffer_s)
            if gap_s:
                self.hearing.starved(stream, gap_s)
            if player.grew_t == t - ago_s:
                stream.worst_heard_ms = stream.worst_ms
        if event.ms > 0 and stream.pending:
            # The acknowledgement's way stands for the question's, so it is part of the round trip and no part of `ago_ms`.
            least_ms = event.least_rtt_ms if event.least_rtt_ms is not None else stream.least_path_ms or 0.0
            self._answer_pending(stream, t, event.turn, t - ago_s, least_ms / 2)
        self.state.ear_up = True
        if event.ear == "sent":
            self._go_by_sent(stream, t, event.turn)

    def wait_for_word(self, stream: Stream, t: float) -> None:
        """Go by what is sent where the kernel has said nothing for WORD_S by t."""
        player = stream.player
        if t > player.word_t + WORD_S and player.under_way:
            self._go_by_sent(stream, player.word_t + WORD_S, stream.turn)

    def _go_by_sent(self, stream: Stream, t: float, turn: Turn) -> None:
        self.state.ear_up = False
        if stream.speaking and turn == stream.turn and stream.player.kernel:
            self.hearing.starved(stream, stream.player.go_by_sent(t, self.buffer_s))
        self._answer_pending(stream, t, turn, None, stream.path_ms or 0.0)

    def _answer_pending(
        self, stream: Stream, t: float, turn: Turn, first_t: float | None, path_ms: float
    ) -> None:
        """Count a turn's answer that is known at t, and came at `first_t`, or when it was sent."""
        for pending in stream.pending:
            if pending.turn == turn:
                stream.pending = [other for other in stream.pending if other is not pending]
                came_t = pending.sent_t if first_t is None else first_t
                self.hearing.answered(stream, t, pending, came_t, path_ms)
