"""Count what listeners heard: answers and underruns. Either the server's sending or the kernel's word says when."""

from __future__ import annotations

from typing import NamedTuple

from omniwatch.core.answers import Lateness
from omniwatch.core.stream import Pending, Stream
from omniwatch.core.totals import Totals
from omniwatch.settings.histograms import INTERRUPTION_EDGES, RTT_EDGES


class Hearing(NamedTuple):
    """Where answers and underruns are counted, and when an answer is late."""

    totals: Totals
    lateness: Lateness

    def answered(self, stream: Stream, t: float, pending: Pending, first_t: float, path_ms: float) -> None:
        """Count an answer, known at t, whose first speech came at `first_t`."""
        if first_t < pending.asked_t or stream.clock_set:
            self.totals.answers_unmeasured += 1
            return
        rtt_ms = (first_t - pending.asked_t) * 1000 + path_ms
        self.totals.token_rtt["server"].observe(rtt_ms / 1000, RTT_EDGES)
        if pending.interrupts:
            self.totals.interruption_answer.observe(rtt_ms / 1000, INTERRUPTION_EDGES)
        stream.answers.answered(t, rtt_ms, pending.turn, self.lateness)

    def starved(self, stream: Stream, seconds: float) -> None:
        """Count an underrun of the model's, unless the client counts its own, or plays no more of the turn."""
        if not stream.is_cut_off and not (stream.counts_underruns and stream.player.reported):
            self.count_underrun(stream, seconds)

    def count_underrun(self, stream: Stream, seconds: float) -> None:
        """Count time in which a listener had nothing to hear."""
        stream.underrun_s += seconds
        self.totals.audio_underrun_seconds += seconds
