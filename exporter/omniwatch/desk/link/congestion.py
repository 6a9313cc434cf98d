"""Size a sender's congestion window as Linux' Reno and CUBIC do. Pure; windows are counted in segments.

What a sender does with its window while it recovers is in tcp.py. BBR, which sets a rate beside the window, is in bbr.py.
"""

from __future__ import annotations

from typing import Protocol

INITIAL_WINDOW = 10
"""RFC 6928."""
NO_THRESHOLD = float("inf")


class Sample:
    """What one acknowledgement told, for a controller that measures."""

    __slots__ = (
        "acked",
        "app_limited",
        "delivered",
        "in_flight",
        "interval_s",
        "left",
        "losses",
        "prior_delivered",
        "recovering",
        "rtt_s",
        "total",
    )

    def __init__(self) -> None:
        self.prior_delivered = -1
        """Segments delivered when the newest of the acknowledged was sent; -1 without any."""
        self.delivered = 0
        """Segments delivered since then."""
        self.interval_s = -1.0
        self.app_limited = False
        self.rtt_s = -1.0
        self.losses = 0
        self.acked = 0
        self.in_flight = 0
        """Before the acknowledgement was processed."""
        self.left = 0
        """In flight after it."""
        self.total = 0
        """Segments delivered in all."""
        self.recovering = False


class Control(Protocol):
    """Congestion control of one sender."""

    window: float
    threshold: float
    measures: bool
    """Whether `measured` sets the window in all states; else the sender reduces it by PRR while it recovers."""

    def acked(self, now: float, count: int, min_rtt_s: float) -> None:
        """Grow: `count` segments were acknowledged, the window was used, and nothing is being recovered."""

    def reduced(self) -> float:
        """Return the threshold after a loss."""

    def timed_out(self) -> None:
        """Forget: the retransmission timer has expired."""

    def resumed(self, now: float, idle_s: float) -> None:
        """Take note that the sender sends again after it had nothing to send."""

    def undone(self, window: float) -> None:
        """Take back a reduction that was none of a loss; the window was `window`."""

    def measured(self, now: float, sample: Sample) -> None:
        """Take an acknowledgement in."""

    def pause_s(self, segments: int) -> float:
        """Return how long to wait after so many segments."""


class Reno:
    """RFC 5681, as Linux counts."""

    measures = False

    def __init__(self) -> None:
        self.window: float = INITIAL_WINDOW
        self.threshold = NO_THRESHOLD
        self._count = 0.0

    def acked(self, now: float, count: int, min_rtt_s: float) -> None:
        """Grow by a segment for each acknowledged one below the threshold, above it by one a window."""
        left = self._slow_start(count)
        if left:
            self._grow(self.window, left)

    def _slow_start(self, count: int) -> int:
        if self.window >= self.threshold:
            return count
        before = self.window
        self.window = min(self.window + count, self.threshold)
        return count - int(self.window - before)

    def _grow(self, each: float, count: int) -> None:
        """Grow by one for every `each` acknowledged segments (tcp_cong_avoid_ai)."""
        if self._count >= each:
            self._count = 0
            self.window += 1
        self._count += count
        if self._count >= each:
            steps = self._count // each
            self._count -= steps * each
            self.window += steps

    def reduced(self) -> float:
        """Return half of the window, at least 2."""
        return max(2, self.window // 2)

    def timed_out(self) -> None:
        """Nothing is remembered."""

    def resumed(self, now: float, idle_s: float) -> None:
        """Nothing is remembered."""

    def undone(self, window: float) -> None:
        """Have the window again."""
        self.window = max(self.window, window)

    def measured(self, now: float, sample: Sample) -> None:
        """Nothing is measured."""

    def pause_s(self, segments: int) -> float:
        """Send at once what the window allows."""
        return 0.0


class Cubic(Reno):
    """RFC 9438, as Linux counts; without HyStart, which a window of less than 16 never meets."""

    BETA = 717 / 1024
    C = 0.4
    FRIENDLY = 8 * (1024 + 717) / 3 / (1024 - 717) / 8

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._count = 0.0
        self._last_max = 0.0
        self._origin = 0.0
        self._k = 0.0
        self._epoch: float | None = None
        self._acks = 0.0
        self._friend = 0.0

    def acked(self, now: float, count: int, min_rtt_s: float) -> None:
        """Grow along the cubic curve, at least as fast as Reno would."""
        left = self._slow_start(count)
        if left:
            self._grow(self._each(now, left, min_rtt_s), left)

    def _each(self, now: float, count: int, min_rtt_s: float) -> float:
        self._acks += count
        window = self.window
        if self._epoch is None:
            self._epoch = now
            self._acks = count
            self._friend = window
            if self._last_max <= window:
                self._k, self._origin = 0.0, window
            else:
                self._k = ((self._last_max - window) / self.C) ** (1 / 3)
                self._origin = self._last_max
        t = now - self._epoch + min_rtt_s
        target = self._origin + self.C * (t - self._k) ** 3
        each = window / (target - window) if target > window else 100 * window
        if self._last_max == 0 and each > 20:
            each = 20
        step = max(1.0, int(window * self.FRIENDLY))
        while self._acks > step:
            self._acks -= step
            self._friend += 1
        if self._friend > window:
            each = min(each, window / (self._friend - window))
        return max(2, int(each))

    def reduced(self) -> float:
        """Return seven tenths of the window, at least 2."""
        self._epoch = None
        window = self.window
        self._last_max = window * (1 + self.BETA) / 2 if window < self._last_max else window
        return max(2, int(window * self.BETA))

    def timed_out(self) -> None:
        """Begin a new curve."""
        self._forget()

    def resumed(self, now: float, idle_s: float) -> None:
        """Time without anything to send is no time of the curve."""
        if self._epoch is not None:
            self._epoch = min(now, self._epoch + idle_s)
