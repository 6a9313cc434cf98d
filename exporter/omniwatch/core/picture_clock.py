"""Estimate how fast the client's camera clock runs, from when its frames arrive.

A frame's arrival less its PTS is a constant, the delay on the way up, and the skew of the two clocks. Delays only add, so the
camera's clock is the line under the points (Moon, Skelly, Towsley: Estimation and removal of clock skew, INFOCOM 1999): of
the points' lower hull the edge over their mean time. A point is the least of POINT_S, so that a frame costs a comparison.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from statistics import median

POINT_S = 3.0
"""Seconds of frames whose least delay is one point."""
POINTS = 40
"""Points kept: two minutes."""
LONG_ENOUGH_S = 30.0
"""Length of a line from which on its slope counts."""
STEEPEST = 2.0
"""Largest slope in ms per second, that is 2,000 ppm: camera clocks are within hundreds."""
OFF_LINE_MS = 40.0
"""A point this far off the line belongs to another one. Also the most that is taken for jitter."""
JITTER_MS = 2.0
"""Jitter that is allowed for beyond what the points show."""
ABOVE_MOST = 5
"""Points in a row above the line that make another route of what may be a queue."""
JUMP_MS = 1000.0
"""A PTS that jumps by more begins a new line at once."""


@dataclass(slots=True)
class PictureClock:
    """The clock of a client's camera. `slope` is positive where it is fast, 0 until it is known to be anything else."""

    pts_ms: float = 0.0
    t: float = 0.0
    """When the last frame, of `pts_ms`, arrived."""
    seen: bool = False
    slope: float = 0.0
    """What the camera's clock gains, ms per second: 1 is 1,000 ppm."""

    times: list[float] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)
    """The points: arrival less PTS."""
    above: int = 0
    """Points in a row, the newest ones, above the line."""
    full_t: float = 0.0
    """End of the seconds whose least delay is looked for; 0 before a line's first frame."""
    least_t: float = 0.0
    least_ms: float = 0.0

    def frame(self, t: float, pts_ms: float) -> None:
        """Take a frame that arrived at t; one from before the last says nothing."""
        if t < self.t:
            return
        delay_ms = t * 1000.0 - pts_ms
        if t >= self.full_t or delay_ms < self.least_ms or pts_ms < self.pts_ms - JUMP_MS:
            self._note(t, pts_ms, delay_ms)
        self.t, self.pts_ms = t, pts_ms

    def set_back(self, by_s: float) -> None:
        """Move to a server's clock that was set back by so much."""
        self.t -= by_s
        self.restart()

    def restart(self) -> None:
        """Begin a new line; the slope stays until it is long enough."""
        self.times.clear()
        self.delays_ms.clear()
        self.above, self.full_t = 0, 0.0

    def _note(self, t: float, pts_ms: float, delay_ms: float) -> None:
        """Take a frame that begins a point or a line, or is the least of its point."""
        if self.full_t:
            # A delay cannot be less than the least by so much, however long the frames before were held up.
            if pts_ms < self.pts_ms - JUMP_MS or delay_ms < self.least_ms - JUMP_MS:
                self.restart()
            elif t >= self.full_t:
                self._add_point()
                self.full_t = 0.0
        if not self.full_t:
            self.full_t, self.seen = t + POINT_S, True
        self.least_t, self.least_ms = t, delay_ms

    def _add_point(self) -> None:
        times, delays_ms = self.times, self.delays_ms
        if times:
            off_ms = (
                self.least_ms + self.slope * self.least_t - min(_residuals(times, delays_ms, -self.slope))
            )
            self.above = self.above + 1 if off_ms > OFF_LINE_MS else 0
            if off_ms < -OFF_LINE_MS or self.above == ABOVE_MOST:
                self.restart()
        times.append(self.least_t)
        delays_ms.append(self.least_ms)
        del times[:-POINTS], delays_ms[:-POINTS]
        length_s = times[-1] - times[0]
        if length_s >= LONG_ENOUGH_S:
            slope = min(max(hull_slope(times, delays_ms), -STEEPEST), STEEPEST)
            residuals = sorted(_residuals(times, delays_ms, slope))
            jitter_ms = min(2 * (median(residuals) - residuals[0]) + JITTER_MS, OFF_LINE_MS)
            self.slope = -slope if abs(slope) > jitter_ms / length_s else 0.0


def hull_slope(times: list[float], delays_ms: list[float]) -> float:
    """Return the slope, in ms per second, of the points' lower hull over their mean time."""
    hull_t, hull_ms = [times[0]], [delays_ms[0]]
    for t, delay_ms in zip(times[1:], delays_ms[1:], strict=True):
        while len(hull_t) > 1:
            t1, y1 = hull_t[-1], hull_ms[-1]
            if (y1 - hull_ms[-2]) * (t - t1) < (delay_ms - y1) * (t1 - hull_t[-2]):
                break
            del hull_t[-1], hull_ms[-1]
        hull_t.append(t)
        hull_ms.append(delay_ms)
    at = min(max(bisect_left(hull_t, sum(times) / len(times)), 1), len(hull_t) - 1)
    return (hull_ms[at] - hull_ms[at - 1]) / (hull_t[at] - hull_t[at - 1])


def _residuals(times: list[float], delays_ms: list[float], slope: float) -> list[float]:
    """Return the heights of the points over a line of this slope through 0."""
    return [delay_ms - slope * t for t, delay_ms in zip(times, delays_ms, strict=True)]
