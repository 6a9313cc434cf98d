"""Compute what a client with a playout buffer hears, from when its speech arrived. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from omniwatch.core.drift import Player
from omniwatch.desk.probe import Heard


@dataclass
class Picture:
    """What the client's camera has shown: its last frame, carried on in real time."""

    pts_ms: float = 0.0
    t: float = 0.0
    seen: bool = False

    def at(self, t: float) -> float:
        """Return the PTS at time t; without any frame the picture's clock is real time itself."""
        return self.pts_ms + (t - self.t) * 1000.0


class HeardTurn:
    """One turn. `asked_t` is when its text was sent; `picture` what the client's camera has shown until now."""

    def __init__(self, asked_t: float, buffer_ms: float, picture: Picture | None = None) -> None:
        self._asked_t = asked_t
        self._buffer_s = buffer_ms / 1000.0
        self._picture = picture or Picture()
        self._player = Player()
        self._start_pts_ms: float | None = None
        """The picture's position when playback starts, once it is known."""
        self._first_t: float | None = None
        self._chunks = 0
        self._underrun_s = 0.0
        self._worst_ms = 0.0

    @property
    def rtt_ms(self) -> float | None:
        """How long the first speech took, once it is there."""
        return None if self._first_t is None else (self._first_t - self._asked_t) * 1000.0

    def audio(self, t: float, dur_ms: float) -> None:
        """Take speech received at t; nothing if it has no length."""
        if dur_ms <= 0:
            return
        if self._first_t is None:
            self._first_t = t
        self._chunks += 1
        self._underrun_s += self._player.send(t, dur_ms, self._buffer_s)

    def frame(self, t: float, pts_ms: float) -> None:
        """Take a frame of the client's own picture; drift is sampled where it falls into the playback."""
        player, picture = self._player, self._picture
        if 0 <= player.start_t <= t <= player.end_t:
            self._sample(self._drift_ms(t, pts_ms))
        picture.pts_ms, picture.t, picture.seen = pts_ms, t, True

    def _drift_ms(self, t: float, pts_ms: float) -> float:
        """Return how far the voice leads the picture that stands at `pts_ms` at time t."""
        if self._start_pts_ms is None:
            start_t, picture = self._player.start_t, self._picture
            self._start_pts_ms = picture.at(start_t) if picture.seen else pts_ms - (t - start_t) * 1000.0
        return self._player.position_ms(t) - (pts_ms - self._start_pts_ms)

    def heard(self) -> Heard:
        """Return what has been heard once all that was received has been played, the picture going on as it did."""
        player = self._player
        if self._first_t is None:
            return Heard()
        self._sample(self._drift_ms(player.end_t, self._picture.at(player.end_t)))
        return Heard(self.rtt_ms, player.sent_ms, self._chunks, self._underrun_s * 1000.0, self._worst_ms)

    def _sample(self, drift_ms: float) -> None:
        if abs(drift_ms) > abs(self._worst_ms):
            self._worst_ms = drift_ms
