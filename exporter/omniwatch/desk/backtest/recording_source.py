"""Read a recording as a live source: a line appears when the clock reaches its time."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import msgspec

from omniwatch.core.streams import CLOCK_STEP_S
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.events import Seconds
from omniwatch.sources import Source

CHUNK_BYTES = 16 * 1024
"""Looked ahead: some 60 events. What the recording itself drops is counted so much early."""
LONGEST_S = 7 * 86_400.0
"""A recording that spans more than this is taken for one with a wrong clock in it."""


class _Timed(msgspec.Struct):
    t: Seconds


_decoder = msgspec.json.Decoder(_Timed)


class Moments:
    """A source in event time: `read` gives the lines up to `until`, in the file's order; one without a time goes with
    its predecessor.

    Raises BacktestError where the times cannot be a server's clock that a Prometheus followed, SourceError.
    """

    up = True
    error: str | None = None
    absent = False
    caught_up = True
    """At every moment: what the file holds for later is not written yet."""

    def __init__(self, recording: Source, name: str) -> None:
        self.name = name
        self.invalid = recording.invalid
        self.until = float("-inf")
        self._recording = recording
        self._lines: deque[tuple[float, bytes]] = deque()
        self._oldest_t: float | None = None
        self._newest_t = float("-inf")
        while self._oldest_t is None and not recording.caught_up:
            self._look_ahead()

    @property
    def first_t(self) -> float | None:
        """Time of the first line that has one; None where no line has."""
        return self._oldest_t

    @property
    def last_t(self) -> float:
        """The newest time of the lines looked at so far: of the whole recording once it has ended."""
        return self._newest_t

    @property
    def ended(self) -> bool:
        """Whether every line was read."""
        return not self._lines and not self._more()

    def read(self, budget: int) -> bytes:
        """Return the next lines whose time has come, about `budget` bytes of them."""
        taken: list[bytes] = []
        while budget > 0 and (self._lines or self._more()) and self._lines[0][0] <= self.until:
            line = self._lines.popleft()[1]
            taken.append(line)
            budget -= len(line)
        return b"".join(taken)

    def _more(self) -> bool:
        """Look further until there is a line or the recording has ended; return whether there is one."""
        while not self._recording.caught_up and not self._lines:
            self._look_ahead()
        return bool(self._lines)

    def _look_ahead(self) -> None:
        chunk = self._recording.read(CHUNK_BYTES)
        self._lines.extend((self._time_of(line), line + b"\n") for line in chunk.split(b"\n") if line)

    def _time_of(self, line: bytes) -> float:
        try:
            t = _decoder.decode(line).t
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._newest_t
        if self._oldest_t is None:
            self._oldest_t = self._newest_t = t
        if t <= self._newest_t - CLOCK_STEP_S:
            raise BacktestError(
                f"the recording goes back in time by {self._newest_t - t:.0f} s, at {utc(self._newest_t)}: "
                "no Prometheus has a moment twice; cut the recording there"
            )
        if t - self._oldest_t > LONGEST_S:
            raise BacktestError(
                f"the recording goes from {utc(self._oldest_t)} to {utc(t)}: "
                f"more than {LONGEST_S / 86_400:.0f} days; cut it"
            )
        self._newest_t = max(self._newest_t, t)
        return t

    def state(self) -> dict[str, Any]:
        """Return nothing: a backtest is not taken up again."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Start at the first line."""

    def close(self) -> None:
        """Let go of the recording."""
        self._recording.close()


def utc(t: float) -> str:
    """Write a time as people read it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(t))
    except (OverflowError, ValueError, OSError):
        return f"t={t:g}"
