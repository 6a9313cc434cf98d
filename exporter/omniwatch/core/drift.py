"""The player model: compute what a listener hears, and when, from when the audio was sent.

All positions are milliseconds of media, all times seconds on the server's clock. A player holds back `buffer_s` before
it starts, then plays without pause as long as there is something to play:

    p_0 = s_0 + B,   p_k = max(s_k, p_(k-1) + d_(k-1))

The position heard at t is what was sent less what is still to come, so `end_t`, the moment at which all that was sent
will have been heard, is all there is to remember of the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

VIDEO_FRESH_S = 1.0
"""A picture clock this old is carried on in real time; a camera sends frames far more often."""
CAMERA_RESTART_MS = 1000.0
"""A PTS that falls back by more than this is a camera that began anew, not a picture that went back."""


@dataclass(slots=True)
class Picture:
    """The picture's position: the PTS of the last received frame, carried on in real time."""

    pts_ms: float = 0.0
    t: float = 0.0
    seen: bool = False

    def at(self, t: float) -> float:
        """Return the PTS at time t; without any video the picture's clock is real time itself."""
        return self.pts_ms + (t - self.t) * 1000.0


@dataclass(slots=True)
class Player:
    """One turn as its listener hears it. `start_t` is p_0, negative before the first chunk."""

    start_t: float = -1.0
    end_t: float = 0.0
    sent_ms: float = 0.0
    start_pts_ms: float = 0.0
    pinned: bool = False
    """Whether the picture's position at p_0 is known (`start_pts_ms`)."""

    def send(self, t: float, dur_ms: float, buffer_s: float) -> float:
        """Take a chunk handed to the network at t; return the seconds its listener had nothing to play before it."""
        gap = 0.0
        if self.start_t < 0:
            self.start_t = self.end_t = t + buffer_s
        elif t > self.end_t:
            gap = t - self.end_t
            self.end_t = t
        self.end_t += dur_ms / 1000.0
        self.sent_ms += dur_ms
        return gap

    def heard(self, t: float, played_ms: float) -> None:
        """Take the client's own playhead: from t on it is the position, whatever was reckoned before."""
        self.sent_ms = max(self.sent_ms, played_ms)
        self.end_t = t + (self.sent_ms - played_ms) / 1000.0
        if self.start_t > t:
            self.start_t = t - played_ms / 1000.0

    def realign(self, shift_ms: float) -> None:
        """Take away shift_ms of drift: audio was moved, as if the turn had begun so much earlier on the picture."""
        self.start_t -= shift_ms / 1000.0
        self.start_pts_ms -= shift_ms

    def set_back(self, by_s: float) -> None:
        """Move to a clock that was set back by so much."""
        if self.start_t >= 0:
            self.start_t -= by_s
        self.end_t = max(0.0, self.end_t - by_s)

    def position_ms(self, t: float) -> float:
        """Return a(t), how much of this turn has been heard by t."""
        return max(0.0, self.sent_ms - max(0.0, self.end_t - t) * 1000.0)

    def pin(self, before: Picture, pts_ms: float, t: float) -> None:
        """Fix the picture's position at p_0 when the first frame after it (`pts_ms` at t) is there.

        It is the frame before p_0 and the time since; without one, the first frame after it, carried back.
        """
        self.start_pts_ms = before.at(self.start_t) if before.seen else pts_ms - (t - self.start_t) * 1000.0
        self.pinned = True

    def drift_ms(self, t: float, pts_ms: float) -> float:
        """Return how far the voice leads the picture that stands at pts_ms at time t. Needs a pinned player."""
        return self.position_ms(t) - (pts_ms - self.start_pts_ms)

    def lag_ms(self, t: float) -> float:
        """Return the drift against real time, for a stream without video: minus the accumulated underrun."""
        return self.position_ms(t) - max(0.0, t - self.start_t) * 1000.0
