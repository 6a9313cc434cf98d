"""Model the player: when each frame plays, and the drift between voice and picture. Pure.

The event contract describes this player. `omniwatch.core.drift` models it from the other end of the network, and the two
differ on purpose. The client counts audio when it has arrived and knows the clock of the picture that it shows; it corrects
the drift by dropping audio or pausing. The sidecar knows only the events of the server: audio sent or arrived, video
received, and what the client reported. It computes the rest.
"""

from __future__ import annotations


class Playout:
    """Model a player that buffers `buffer_s` before its first frame and pauses while it has nothing to play."""

    def __init__(self, buffer_s: float) -> None:
        self.dry_at: float | None = None
        """Time at which the buffered audio will have been played; None before the first frame."""
        self._buffer_s = buffer_s
        self._began_at = 0.0
        self._added_s = self._shifted_s = self._starved_s = 0.0
        self._picture: tuple[float, float] | None = None
        self._base_ms: float | None = None

    def add(self, now: float, seconds: float) -> float:
        """Append audio that has arrived now; return when it begins to play."""
        if self.dry_at is None:
            self._began_at = self.dry_at = now + self._buffer_s
            if self._picture:
                then, pts_ms = self._picture
                self._base_ms = pts_ms + (self._began_at - then) * 1000
        play_at = max(now, self.dry_at)
        self._starved_s += play_at - self.dry_at
        self.dry_at = play_at + seconds
        self._added_s += seconds
        return play_at

    def drift_ms(self, now: float, pts_ms: float) -> float | None:
        """Return how many milliseconds the voice leads the picture, which is at `pts_ms` now.

        The drift of a turn begins at 0. None while no voice plays.
        """
        self._picture = (now, pts_ms)
        if self.dry_at is None or now < self._began_at:
            return None
        if self._base_ms is None:
            self._base_ms = pts_ms - (now - self._began_at) * 1000
        heard_s = self._added_s - max(0.0, self.dry_at - now)
        return heard_s * 1000 - (pts_ms - self._base_ms)

    def shift(self, now: float, drift_ms: float) -> float:
        """Correct a drift as far as possible; return the milliseconds dropped (negative) or paused (positive)."""
        if self.dry_at is None:
            return 0.0
        shift_s = max(drift_ms / 1000, -max(0.0, self.dry_at - now))
        if shift_s > 0:
            # A player that has run dry pauses from now on.
            self._starved_s += max(0.0, now - self.dry_at)
            self.dry_at = max(self.dry_at, now)
        self.dry_at += shift_s
        self._shifted_s += shift_s
        return shift_s * 1000

    def played_s(self, now: float) -> float:
        """Return how much has been played, as without corrections: whoever models the player is told of those."""
        if self.dry_at is None:
            return 0.0
        heard_s = self._added_s - max(0.0, self.dry_at - now) + self._shifted_s
        return min(max(0.0, heard_s), self._added_s)

    def starved_s(self, now: float) -> float:
        """Return for how long there has been nothing to play, from the first frame on."""
        return self._starved_s + max(0.0, now - (now if self.dry_at is None else self.dry_at))
