"""The player model: compute what a listener hears, and when, from when the speech reached it.

All positions are milliseconds of media, all times seconds on the server's clock. A player holds back `buffer_s` before
it starts, then plays without pause as long as there is something to play:

    p_0 = h_0 + B,   p_k = max(h_k, p_(k-1) + d_(k-1))

A chunk reached the listener at h_k: when it arrived by the kernel's word (`kernel`), else when it was sent.

`end_t`, the moment at which all that reached the listener will have been played, is all there is to remember of the chunks.
The listener starved for as long as `end_t` is past `start_t` and the speech. The newest underruns are kept apart, for the
drift of a moment before them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RECENT_S = 10.0
"""Seconds whose underrun is the drift where there is no picture: fewer than the rule's `for`."""
GAPS_KEPT = 128
"""Underruns kept with their times; of more, the oldest two count as one."""
GAPS_KEPT_S = 30.0
"""Seconds for which they are kept: RECENT_S and a round trip."""
ROUNDING_MS = 0.5
"""Less speech than this is not under way."""


@dataclass(slots=True)
class Player:
    """One turn as its listener hears it. `start_t` is p_0, negative before the first chunk."""

    start_t: float = -1.0
    end_t: float = 0.0
    sent_ms: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """The newest underruns that are over: from when until when."""
    forgiven_t: float = 0.0
    """Until when a realignment made good the underrun that is not over."""

    kernel: bool = False
    """Whether the kernel says what arrived."""
    arrived_ms: float = 0.0
    sent_end_t: float = 0.0
    """When all that was sent would have been played, had it arrived at once."""
    word_t: float = 0.0
    """When the kernel last said what arrived, or the speech under way was sent."""
    grew_t: float = 0.0
    """When something last arrived, the client reported, or the speech under way was sent."""
    waiting: int = 0
    """Bytes not acknowledged by then."""

    reported: bool = False
    """Whether the client reports what it plays."""
    lag_s: float | None = None
    """How far the client's playhead is behind one that never waited, by its last report."""
    gaps_s: float = 0.0
    """Underruns by the model since the client's last report."""

    @property
    def reached_ms(self) -> float:
        """The speech that reached the listener."""
        return self.arrived_ms if self.kernel else self.sent_ms

    @property
    def under_way(self) -> bool:
        """Whether speech was sent that has not arrived."""
        return self.kernel and self.sent_ms - self.arrived_ms > ROUNDING_MS

    def anew(self, t: float) -> Player:
        """Return a player that begins at t, where what came before cannot be placed in time."""
        if not self.kernel:
            return Player(end_t=t)
        return Player(
            end_t=t,
            sent_end_t=t,
            kernel=True,
            sent_ms=self.sent_ms,
            arrived_ms=self.arrived_ms,
            word_t=t,
            grew_t=t,
        )

    def silent_from(self) -> float:
        """Return when a listener whom all reached at once would have heard all."""
        return self.sent_end_t if self.kernel else self.end_t

    def send(self, t: float, dur_ms: float, buffer_s: float) -> float:
        """Take a chunk handed to the network at t; return the seconds its listener had nothing to play before it."""
        if not self.kernel:
            self.sent_ms += dur_ms
            return self._play(t, dur_ms, buffer_s)
        if not self.under_way:
            self.word_t = self.grew_t = t
        self.sent_end_t = max(self.sent_end_t, t if self.sent_ms else t + buffer_s) + dur_ms / 1000.0
        self.sent_ms += dur_ms
        return 0.0

    def arrive(self, t: float, ago_s: float, ms: float, waiting: int, buffer_s: float) -> float:
        """Take the kernel's word at t that `ms` of the turn arrived, the last `ago_s` before; return the underrun before that."""
        if not self.kernel:
            # What was sent counts as heard; what arrived beyond that was sent before anybody looked.
            self.start_t -= max(0.0, ms - self.sent_ms) / 1000.0
            self.sent_ms = self.arrived_ms = max(self.sent_ms, ms)
            self.kernel, self.sent_end_t, self.grew_t = True, self.end_t, t
        more_ms = ms - self.arrived_ms
        if more_ms > 0:
            self.grew_t = t - ago_s
        elif waiting < self.waiting:
            self.grew_t = t
        self.word_t, self.waiting = t, waiting
        if more_ms <= 0:
            return 0.0
        self.arrived_ms = ms
        self.sent_ms = max(self.sent_ms, ms)
        return self._play(t - ago_s, more_ms, buffer_s)

    def go_by_sent(self, t: float, buffer_s: float) -> float:
        """Go by what is sent from t on: what is under way counts as arrived. Return the underrun before it."""
        more_ms, self.kernel = self.sent_ms - self.arrived_ms, False
        return self._play(t, more_ms, buffer_s) if more_ms > 0 else 0.0

    def _play(self, t: float, dur_ms: float, buffer_s: float) -> float:
        gap_s = 0.0
        if self.start_t < 0:
            # After the clock was set there is speech from before, which a listener has heard.
            self.end_t = t + buffer_s
            self.start_t = self.end_t - (self.reached_ms - dur_ms) / 1000.0
        elif t > self.end_t:
            gap_s = t - self.end_t
            self._add_gap(min(max(self.end_t, self.forgiven_t), t), t)
            self.end_t = t
        self.end_t += dur_ms / 1000.0
        return gap_s

    def heard(self, t: float, played_ms: float) -> None:
        """Take the client's own playhead: from t on it is the position.

        A turn's first report stands where the model does. A report that was held up on its way shows a lag that the next
        has not, so of two in a row the smaller lag counts.
        """
        over_s = self._over_s()
        if self.kernel:
            self.arrived_ms = max(self.arrived_ms, played_ms)
        self.sent_ms = max(self.sent_ms, played_ms)
        if self.lag_s is None:
            self.lag_s = over_s + max(0.0, t - self.end_t)
            self.start_t = t - played_ms / 1000.0 - self.lag_s
        lag_s = t - played_ms / 1000.0 - self.start_t
        over_now_s = min(lag_s, self.lag_s)
        self.end_t = self.start_t + over_now_s + self.reached_ms / 1000.0
        self._correct(t, over_now_s - over_s)
        self.lag_s, self.reported, self.gaps_s = lag_s, True, 0.0
        self.grew_t = max(self.grew_t, t)

    def starve(self, t: float, seconds: float) -> None:
        """Take the client's word that it had nothing to play for so long since its last report."""
        more_s = seconds - self.gaps_s
        self.end_t += more_s
        self._correct(t, more_s)
        if self.lag_s is not None:
            self.lag_s = max(self.lag_s, self._over_s())
        self.reported, self.gaps_s = True, 0.0
        self.grew_t = max(self.grew_t, t)

    def realign(self, t: float, shift_ms: float) -> None:
        """Take away shift_ms of drift: audio was moved, as if the turn had begun so much earlier on the picture."""
        self.start_t -= shift_ms / 1000.0
        if shift_ms < 0:
            left_s = -shift_ms / 1000.0
            since_t = max(self.end_t, self.forgiven_t)
            if t > since_t:
                self.forgiven_t = min(t, since_t + left_s)
                left_s -= self.forgiven_t - since_t
            self._forgive(left_s)

    def set_back(self, by_s: float) -> None:
        """Move to a clock that was set back by so much."""
        if self.start_t >= 0:
            self.start_t -= by_s
        self.end_t = max(0.0, self.end_t - by_s)
        self.sent_end_t -= by_s
        self.word_t -= by_s
        self.grew_t -= by_s
        self.forgiven_t -= by_s
        self.gaps = [(a - by_s, b - by_s) for a, b in self.gaps]

    def starved_s(self, t: float) -> float:
        """Return for how long the listener had nothing to play from `start_t` to t; negative for a client that is ahead."""
        reached_ms = self.arrived_ms if self.kernel else self.sent_ms
        if t >= self.end_t:
            return t - self.start_t - reached_ms / 1000.0
        later_s = 0.0
        for begin, end in reversed(self.gaps):
            if end <= t:
                break
            later_s += end - max(begin, t)
        return self.end_t - self.start_t - reached_ms / 1000.0 - later_s

    def recently_starved_s(self, t: float) -> float:
        """Return the same of the last RECENT_S."""
        since_t = t - RECENT_S
        recent_s = max(0.0, t - max(self.end_t, self.forgiven_t, since_t))
        for begin, end in reversed(self.gaps):
            if end <= since_t:
                break
            recent_s += max(0.0, min(end, t) - max(begin, since_t))
        return recent_s

    def position_ms(self, t: float) -> float:
        """Return a(t), how much of this turn has been heard by t."""
        return max(0.0, (t - self.start_t - self.starved_s(t)) * 1000.0) if self.start_t >= 0 else 0.0

    def _over_s(self) -> float:
        """Return the underruns that are over."""
        return self.end_t - self.start_t - self.reached_ms / 1000.0

    def _add_gap(self, begin: float, end: float) -> None:
        gaps = self.gaps
        gaps.append((begin, end))
        self.gaps_s += end - begin
        while gaps[0][1] < end - GAPS_KEPT_S:
            del gaps[0]
        if len(gaps) > GAPS_KEPT:
            (a, b), (c, d) = gaps[:2]
            gaps[:2] = [(c - (b - a), d)]

    def _correct(self, t: float, more_s: float) -> None:
        """Enter what the client's word adds to the underruns before t, or takes away."""
        if more_s > 0:
            end = min(t, self.end_t)
            self._add_gap(end - more_s, end)
        else:
            self._forgive(-more_s)

    def _forgive(self, seconds: float) -> None:
        while seconds > 0 and self.gaps:
            begin, end = self.gaps.pop()
            if end - begin > seconds:
                self.gaps.append((begin, end - seconds))
            seconds -= end - begin
