"""What a listener really had, reckoned from when whole messages were there: the same player, on the client's own clocks.

It shares no code with the sidecar's player, whose word it judges.
"""

from __future__ import annotations

from typing import NamedTuple

BUFFER_S = 0.08
STEP_S = 0.02
STUTTER_S = 10.0
"""Without a picture, drift is minus the underrun of so many seconds."""


class Played(NamedTuple):
    """One message: when it began and ended to play, and how long there was nothing to play before it."""

    start_t: float
    end_t: float
    gap_s: float


class Heard:
    """One turn, played from `arrivals` (time in seconds, length in ms); `rate` is the camera's clock against real time."""

    def __init__(self, arrivals: list[tuple[float, float]], rate: float | None) -> None:
        self.arrivals = arrivals
        self.rate = rate
        self.played: list[Played] = []
        ready_t = 0.0
        for at, ms in arrivals:
            start = max(at, ready_t) if self.played else at + BUFFER_S
            gap = start - ready_t if self.played else 0.0
            ready_t = start + ms / 1000
            self.played.append(Played(start, ready_t, gap))

    @property
    def start_t(self) -> float:
        return self.played[0].start_t

    @property
    def end_t(self) -> float:
        return self.played[-1].end_t

    @property
    def underrun_s(self) -> float:
        return sum(one.gap_s for one in self.played)

    def starved_s(self, t: float, since_t: float = 0.0) -> float:
        """Return how long there was nothing to play from `since_t` until t."""
        total, until = 0.0, self.start_t
        for one in self.played:
            total += max(0.0, min(t, one.start_t) - max(since_t, until))
            until = one.end_t
        return total + max(0.0, t - max(since_t, until)) if t > until else total

    def drift_ms(self, t: float) -> float:
        """Return how far the voice leads the picture at t, while the turn is heard."""
        if self.rate is None:
            return -1000 * self.starved_s(t, t - STUTTER_S)
        return -1000 * (self.starved_s(t) + (self.rate - 1) * (t - self.start_t))

    def past_s(self, limit_ms: float) -> float:
        """Return the longest time in a row with a drift of over `limit_ms`."""
        longest, so_far, t = 0.0, 0.0, self.start_t
        while t <= self.end_t:
            so_far = so_far + STEP_S if abs(self.drift_ms(t)) > limit_ms else 0.0
            longest, t = max(longest, so_far), t + STEP_S
        return longest
