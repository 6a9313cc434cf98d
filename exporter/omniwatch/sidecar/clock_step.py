"""Detect backward steps of the wall clock, and shift the live streams' timestamps by the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omniwatch.core.stream import Stream
from omniwatch.core.streams import CLOCK_STEP_S, STEP_S

TRIES = 5


class WallClock:
    """Compare the wall clock with the monotonic one. `ahead` is their offset in seconds at the last look; a decrease is a step back.

    A stream with new events corrects itself. A silent stream would stay live until the clock reaches the old time again.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.ahead = clock() - monotonic()
        self._clock, self._monotonic = clock, monotonic
        self._step_s = 0.0
        self._settled_at: float | None = None
        self._seen = self._offset()

    def step_s(self) -> float:
        """Return by how much the wall clock was set since the last call; 0 where that is less than STEP_S."""
        before, self._seen = self._seen, self._offset()
        step_s = self._seen - before
        return step_s if abs(step_s) > STEP_S else 0.0

    def _offset(self) -> float:
        """Return the wall clock's offset, read again where something came between the two readings."""
        for _ in range(TRIES):
            began = self._monotonic()
            wall = self._clock()
            if self._monotonic() - began < STEP_S / 10:
                break
        return wall - began

    def settle(self, streams: Iterable[Stream], behind: bool) -> None:
        """Compare the clocks, and after a step shift the streams. Wait while events from before it are unread (`behind`).

        Correct for CLOCK_STEP_S more: events stamped before the step may still be read.
        """
        now, steady = self._clock(), self._monotonic()
        step_s, self.ahead = self.ahead - (now - steady), now - steady
        if step_s > CLOCK_STEP_S:
            self._step_s, self._settled_at = step_s, steady + CLOCK_STEP_S
        if self._settled_at is None or behind:
            return
        shift_streams(streams, now, self._step_s)
        if steady >= self._settled_at:
            self._settled_at = None


def shift_streams(streams: Iterable[Stream], now: float, step_s: float) -> None:
    """Move the streams that spoke later than `now` by the step, or, where that is not known, to now."""
    for stream in streams:
        if stream.last_t > now + CLOCK_STEP_S:
            stream.set_back(max(step_s, stream.last_t - now))
