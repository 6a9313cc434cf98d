"""One listener: its turns, its player, its two curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isinf

from omniwatch.core.answers import Answers, Turn
from omniwatch.core.drift import VIDEO_FRESH_S, Picture, Player
from omniwatch.core.integrity import FrameWatch
from omniwatch.core.trend import Trend

TURNS_KEPT = 8
"""Turns of a stream that are known to have begun; a listener who speaks up has seldom more than two under way."""


@dataclass(slots=True)
class Stream:
    """One listener. Of two turns at once, `asked` waits for its first speech while `turn` is still being played."""

    id: str
    slot: int
    opened_t: float
    last_t: float
    peer: str | None = None
    kind: str | None = None
    source: str = ""
    """Where its last event was read."""
    ahead: float = inf
    """By how much its times are ahead of the server's monotonic clock; infinite for a writer that gives none."""
    closing: bool = False

    clock_set: bool = False
    """The wall clock was set since the question, and nobody knows where: the answer's delay cannot be told."""
    asked: bool = False
    asked_turn: Turn = None
    asked_t: float = 0.0
    turn: Turn = None
    begun: list[Turn] = field(default_factory=list)
    """The newest turns that began, `turn` first: more of an older one that goes on being sent begins nothing."""
    speaking: bool = False
    """Audio of `turn` came, and its playback is not over."""
    turn_open: bool = False
    """`turn` has not ended at the server: a player with nothing to play is starving."""

    picture: Picture = field(default_factory=Picture)
    player: Player = field(default_factory=Player)
    frames: FrameWatch = field(default_factory=FrameWatch)
    trend: Trend = field(default_factory=Trend)
    stated: bool = False
    drift_ms: float | None = None
    drift_t: float = 0.0
    """When it was sampled."""
    worst_ms: float = 0.0
    shifted_ms: float = 0.0
    """What realignments took away of the drift so far."""
    sampled_shift_ms: float = 0.0
    """The same when `drift_ms` was sampled."""

    answers: Answers = field(default_factory=Answers)
    path_ms: float | None = None
    """The network's part of a round trip, as the kernel last measured it."""

    def drift_at(self, now: float, keep_s: float) -> float | None:
        """Return the drift in ms to show at `now`: a stated one for `keep_s` after its sample, else while the turn is heard."""
        return self._drift(now) if self._drift_shown(now, keep_s) else None

    def cumulative_at(self, now: float, keep_s: float) -> float | None:
        """Return the drift in ms to show at `now` had nothing ever been realigned."""
        return self._cumulative(now) if self._drift_shown(now, keep_s) else None

    def _drift_shown(self, now: float, keep_s: float) -> bool:
        if self.stated:
            return now < self.drift_t + keep_s
        return self.speaking and (self.turn_open or now <= self.player.end_t)

    def _drift(self, now: float) -> float | None:
        """Return the last drift, or, where no video marks the time, that of a player that starves."""
        if self._sample_stands(now):
            return self.drift_ms
        return self.modelled(now if self.turn_open else min(now, self.player.end_t))

    def _cumulative(self, now: float) -> float | None:
        drift = self._drift(now)
        if drift is None:
            return None
        return drift + (self.sampled_shift_ms if self._sample_stands(now) else self.shifted_ms)

    def realign(self, t: float, shift_ms: float) -> None:
        """Take away shift_ms of drift at t; of a modelled drift no more than there is.

        The model knows what was sent. A client also makes good what its network did, which the model never had.
        """
        if not self.stated:
            known_ms = (self._cumulative(t) or 0.0) - self.shifted_ms
            shift_ms = min(max(shift_ms, min(known_ms, 0.0)), max(known_ms, 0.0))
            self.player.realign(shift_ms)
        self.shifted_ms += shift_ms

    def set_back(self, by_s: float) -> None:
        """Move all that was to a clock that was set back by so much; the slope begins anew."""
        self.opened_t -= by_s
        self.last_t -= by_s
        self.asked_t -= by_s
        self.drift_t -= by_s
        self.answers.set_back(by_s)
        self.picture.t -= by_s
        self.player.set_back(by_s)
        self.trend = Trend()

    def follow_clock(self, ahead: float) -> None:
        """Move all that was, where the wall clock was set since: its times are now so much ahead of the monotonic clock."""
        if not isinf(self.ahead):
            self.set_back(self.ahead - ahead)
        self.ahead = ahead

    def _sample_stands(self, now: float) -> bool:
        waits = self.player.start_t < 0 or now < self.player.start_t
        return self.stated or not self.speaking or waits or self.picture_is_fresh(now)

    def picture_is_fresh(self, t: float) -> bool:
        """Whether video frames are coming, so that they sample the drift."""
        return self.picture.seen and t - self.picture.t <= VIDEO_FRESH_S

    def modelled(self, t: float) -> float:
        """Return the player's drift in ms at t, the picture's clock carried on in real time."""
        if not self.picture.seen:
            return self.player.lag_ms(t)
        if not self.player.pinned:
            self.player.pin(self.picture, self.picture.pts_ms, self.picture.t)
        return self.player.drift_ms(t, self.picture.at(t))

    def silent_s(self, now: float) -> float:
        """Return for how long this listener has waited for speech that is due; 0 when none is."""
        if not (self.asked or (self.speaking and self.turn_open)):
            return 0.0
        heard_until = self.player.end_t if self.speaking else 0.0
        return max(0.0, now - max(heard_until, self.asked_t if self.asked else 0.0))
