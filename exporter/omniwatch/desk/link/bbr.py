"""Pace a sender as Linux' BBR (version 1) does: by the highest delivery rate of ten rounds and the least round trip of 10 s.

Left out: the long-term estimate for networks that police rates.
"""

from __future__ import annotations

import random
from collections import deque

from omniwatch.desk.link.congestion import INITIAL_WINDOW, NO_THRESHOLD, Sample

HIGH_GAIN = 2.885
CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
WINDOW_GAIN = 2.0
LEAST_WINDOW = 4
RATE_ROUNDS = 10
MIN_RTT_S = 10.0
"""How long a least round trip holds before the sender looks for another."""
PROBE_RTT_S = 0.2
FULL_GROWTH = 1.25
FULL_ROUNDS = 3
MARGIN = 0.99
"""The pace is a hundredth less than the rate."""
SPARE = 3
"""Segments beyond the window, for what hosts hold back."""

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)


class Bbr:
    """BBR of one sender. Rates are segments a second."""

    measures = True

    def __init__(self, rng: random.Random) -> None:
        self.window: float = INITIAL_WINDOW
        self.threshold = NO_THRESHOLD
        self._rng = rng
        self._mode = STARTUP
        self._rates: deque[tuple[int, float]] = deque()
        self._rate = 0.0
        self._round = 0
        self._round_ends = 0
        self._round_began = False
        self._min_rtt_s = -1.0
        self._min_rtt_at = 0.0
        self._pace = 0.0
        self._pace_gain = self._window_gain = HIGH_GAIN
        self._full_rate = 0.0
        self._full_rounds = 0
        self._full = False
        self._cycle = 0
        self._cycle_at = 0.0
        self._conserving = False
        self._was_recovering = False
        self._prior_window = 0.0
        self._probe_done_at = 0.0
        self._probe_round = False
        self._resumed = False
        self._extra: deque[tuple[int, float]] = deque()
        self._extra_at = 0.0
        self._extra_acked = 0.0

    def acked(self, now: float, count: int, min_rtt_s: float) -> None:
        """`measured` does it all."""

    def reduced(self) -> float:
        """Remember the window: a loss is not taken for congestion."""
        if self._was_recovering or self._mode == PROBE_RTT:
            self._prior_window = max(self._prior_window, self.window)
        else:
            self._prior_window = self.window
        return NO_THRESHOLD

    def timed_out(self) -> None:
        """Look anew whether the pipe is full."""
        self._was_recovering = True
        self._full_rate = 0.0
        self._round_began = True

    def resumed(self, now: float, idle_s: float) -> None:
        """Go on at the rate that was, and take no note of the round trip's age."""
        self._resumed = True
        self._extra_at = now
        self._extra_acked = 0.0
        if self._mode == PROBE_BW:
            self._set_pace(1.0)
        elif self._mode == PROBE_RTT:
            self._check_probe_done(now)

    def undone(self, window: float) -> None:
        """Have the window again."""
        self._full_rate, self._full_rounds = 0.0, 0
        self.window = max(self.window, self._prior_window)

    def pause_s(self, segments: int) -> float:
        """Return how long to wait after so many segments."""
        return segments / self._pace if self._pace else 0.0

    def first_rtt(self, rtt_s: float) -> None:
        """Pace by a first round trip, that of the handshake."""
        self._pace = HIGH_GAIN * INITIAL_WINDOW / max(rtt_s, 0.001)

    def measured(self, now: float, sample: Sample) -> None:
        """Update the model of the path, then pace and window."""
        self._update_rate(sample)
        self._update_extra(now, sample)
        self._update_cycle(now, sample)
        self._check_full(sample)
        self._check_drain(now, sample)
        self._update_min_rtt(now, sample)
        self._set_pace(self._pace_gain)
        self._set_window(sample)
        self._was_recovering = sample.recovering

    def _update_rate(self, sample: Sample) -> None:
        self._round_began = False
        if sample.prior_delivered < 0 or sample.interval_s <= 0:
            return
        if sample.prior_delivered >= self._round_ends:
            self._round_ends = sample.total
            self._round += 1
            self._round_began = True
            self._conserving = False
        rate = sample.delivered / sample.interval_s
        if not sample.app_limited or rate >= self._rate:
            while self._rates and self._rates[-1][1] <= rate:
                self._rates.pop()
            self._rates.append((self._round, rate))
        # The oldest of the window holds on until a new sample replaces it.
        while len(self._rates) > 1 and self._rates[0][0] <= self._round - RATE_ROUNDS:
            self._rates.popleft()
        self._rate = self._rates[0][1] if self._rates else 0.0

    def _update_extra(self, now: float, sample: Sample) -> None:
        """Note how many more were acknowledged at once than the rate says."""
        if sample.acked <= 0 or sample.prior_delivered < 0 or sample.interval_s <= 0:
            return
        expected = self._rate * (now - self._extra_at)
        if self._extra_acked <= expected:
            self._extra_acked, self._extra_at, expected = 0.0, now, 0.0
        self._extra_acked = min(self._extra_acked + sample.acked, 2**20)
        extra = min(self._extra_acked - expected, self.window)
        self._extra.append((self._round, extra))
        while self._extra[0][0] <= self._round - RATE_ROUNDS:
            self._extra.popleft()

    def _target(self, gain: float) -> float:
        if self._min_rtt_s < 0:
            return INITIAL_WINDOW
        segments = self._rate * self._min_rtt_s * gain + SPARE
        segments = -(-segments // 2) * 2
        return segments + 2 if self._mode == PROBE_BW and self._cycle == 0 else segments

    def _update_cycle(self, now: float, sample: Sample) -> None:
        if self._mode != PROBE_BW:
            return
        full = now - self._cycle_at > self._min_rtt_s
        if self._pace_gain > 1:
            over = full and (sample.losses > 0 or sample.in_flight >= self._target(self._pace_gain))
        elif self._pace_gain < 1:
            over = full or sample.in_flight <= self._target(1.0)
        else:
            over = full
        if over:
            self._next_phase(now)

    def _next_phase(self, now: float) -> None:
        self._cycle = (self._cycle + 1) % len(CYCLE)
        self._cycle_at = now
        self._pace_gain = CYCLE[self._cycle]

    def _enter_probe_bw(self, now: float) -> None:
        self._mode = PROBE_BW
        self._window_gain = WINDOW_GAIN
        self._cycle = (len(CYCLE) - 1 - self._rng.randrange(len(CYCLE) - 1)) % len(CYCLE)
        self._next_phase(now)

    def _check_full(self, sample: Sample) -> None:
        if self._full or not self._round_began or sample.app_limited:
            return
        if self._rate >= self._full_rate * FULL_GROWTH:
            self._full_rate, self._full_rounds = self._rate, 0
            return
        self._full_rounds += 1
        self._full = self._full_rounds >= FULL_ROUNDS

    def _check_drain(self, now: float, sample: Sample) -> None:
        if self._mode == STARTUP and self._full:
            self._mode = DRAIN
            self._pace_gain, self._window_gain = 1 / HIGH_GAIN, HIGH_GAIN
        if self._mode == DRAIN and sample.left <= self._target(1.0):
            self._enter_probe_bw(now)

    def _update_min_rtt(self, now: float, sample: Sample) -> None:
        expired = now > self._min_rtt_at + MIN_RTT_S
        if sample.rtt_s >= 0 and (self._min_rtt_s < 0 or sample.rtt_s <= self._min_rtt_s or expired):
            self._min_rtt_s, self._min_rtt_at = sample.rtt_s, now
        if expired and not self._resumed and self._mode != PROBE_RTT:
            self._mode = PROBE_RTT
            self._pace_gain = self._window_gain = 1.0
            self._prior_window = max(self._prior_window, self.window) if self._was_recovering else self.window
            self._probe_done_at = 0.0
        if self._mode == PROBE_RTT:
            if not self._probe_done_at and sample.left <= LEAST_WINDOW:
                self._probe_done_at = now + PROBE_RTT_S
                self._probe_round = False
                self._round_ends = sample.total
            elif self._probe_done_at:
                self._probe_round = self._probe_round or self._round_began
                if self._probe_round:
                    self._check_probe_done(now)
        if sample.acked > 0:
            self._resumed = False

    def _check_probe_done(self, now: float) -> None:
        if not self._probe_done_at or now <= self._probe_done_at:
            return
        self._min_rtt_at = now
        self.window = max(self.window, self._prior_window)
        if self._full:
            self._enter_probe_bw(now)
        else:
            self._mode = STARTUP
            self._pace_gain = self._window_gain = HIGH_GAIN

    def _set_pace(self, gain: float) -> None:
        pace = self._rate * gain * MARGIN
        if self._full or pace > self._pace:
            self._pace = pace or self._pace

    def _set_window(self, sample: Sample) -> None:
        if sample.acked > 0 and not self._recovers(sample):
            target = self._target(self._window_gain)
            if self._full:
                extra = max((one for _, one in self._extra), default=0.0)
                self.window = min(self.window + sample.acked, target + min(extra, self._rate * 0.1))
            elif self.window < target or sample.total < INITIAL_WINDOW:
                self.window += sample.acked
            self.window = max(self.window, LEAST_WINDOW)
        if self._mode == PROBE_RTT:
            self.window = min(self.window, LEAST_WINDOW)

    def _recovers(self, sample: Sample) -> bool:
        """Send no more than arrives for the first round of a recovery; have the window again after it."""
        left = sample.left
        window = max(self.window - sample.losses, 1) if sample.losses else self.window
        if sample.recovering and not self._was_recovering:
            self._conserving = True
            self._round_ends = sample.total
            window = left + sample.acked
        elif self._was_recovering and not sample.recovering:
            window = max(window, self._prior_window)
            self._conserving = False
        self.window = max(window, left + sample.acked) if self._conserving else window
        return self._conserving
