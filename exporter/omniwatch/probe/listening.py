"""Compute what a client with a playout buffer hears, from when its speech arrived. Pure."""

from __future__ import annotations

from omniwatch.core.drift import Picture, Player
from omniwatch.probe import Heard


class HeardTurn:
    """One turn. `asked_t` is when its text was sent; `picture` what the client's camera has shown until now."""

    def __init__(self, asked_t: float, buffer_ms: float, picture: Picture | None = None) -> None:
        self._asked_t = asked_t
        self._buffer_s = buffer_ms / 1000.0
        self._picture = picture or Picture()
        self._player = Player()
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
        player = self._player
        if 0 <= player.start_t <= t <= player.end_t:
            if not player.pinned:
                player.pin(self._picture, pts_ms, t)
            self._sample(player.drift_ms(t, pts_ms))
        picture = self._picture
        picture.pts_ms, picture.t, picture.seen = pts_ms, t, True

    def heard(self) -> Heard:
        """Return what has been heard once all that was received has been played, the picture going on as it did."""
        player, picture = self._player, self._picture
        if self._first_t is None:
            return Heard()
        if not picture.seen:
            self._sample(player.lag_ms(player.end_t))
        else:
            if not player.pinned:
                player.pin(picture, picture.pts_ms, picture.t)
            self._sample(player.drift_ms(player.end_t, picture.at(player.end_t)))
        return Heard(self.rtt_ms, player.sent_ms, self._chunks, self._underrun_s * 1000.0, self._worst_ms)

    def _sample(self, drift_ms: float) -> None:
        if abs(drift_ms) > abs(self._worst_ms):
            self._worst_ms = drift_ms
