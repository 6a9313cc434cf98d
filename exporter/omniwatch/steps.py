"""The wall's clock set back while listeners are there: what they said before is put onto the clock as it goes now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omniwatch.stream import Stream
from omniwatch.streams import CLOCK_STEP_S


class WallClock:
    """Sees the wall's clock go back against one that never steps. `ahead` is what the first has over the second, in seconds.

    A listener who speaks again tells by that that the clock was set back; one who left, or waits, would stay until the
    clock has come to the old time once more.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.ahead = clock() - monotonic()
        self._clock, self._monotonic = clock, monotonic
        self._step_s = 0.0
        self._settled_at: float | None = None

    def settle(self, streams: Iterable[Stream], behind: bool) -> None:
        """Look at the clocks, and after a step at the streams; not while unread events (`behind`) are from before it.

        It is looked at them for a moment more: what was said before the step may be written after it.
        """
        now, steady = self._clock(), self._monotonic()
        step_s, self.ahead = self.ahead - (now - steady), now - steady
        if step_s > CLOCK_STEP_S:
            self._step_s, self._settled_at = step_s, steady + CLOCK_STEP_S
        if self._settled_at is None or behind:
            return
        put_back(streams, now, self._step_s)
        if steady >= self._settled_at:
            self._settled_at = None


def put_back(streams: Iterable[Stream], now: float, step_s: float) -> None:
    """Move the streams that spoke later than `now` by the step, or, where that is not known, to now."""
    for stream in streams:
        if stream.last_t > now + CLOCK_STEP_S:
            stream.set_back(max(step_s, stream.last_t - now))
