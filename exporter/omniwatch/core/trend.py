"""Estimate how fast drift grows and when it reaches the threshold (Theil-Sen over the last minute)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign, inf, sqrt
from statistics import median

import msgspec

BIN_S = 3.0
BINS = 20
"""A minute of medians. Medians of three seconds take out the jitter of single frames, and 190 pairs cost 20 us a scrape."""
MIN_BINS = 5
SIGMAS = 3.0
"""A slope counts as real when the rank confidence interval of this many standard deviations lies on one side of 0."""


class Slope(msgspec.Struct, frozen=True, gc=False):
    """Drift growth in ms per second; `real` when chance does not explain it."""

    ms_per_s: float
    real: bool

    def eta_s(self, drift_ms: float, limit_ms: float) -> float:
        """Return the seconds until |drift| reaches limit_ms: 0 when it has, infinity when it is not on its way."""
        if abs(drift_ms) >= limit_ms:
            return 0.0
        if not self.real:
            return inf
        return (limit_ms - copysign(drift_ms, drift_ms * self.ms_per_s)) / abs(self.ms_per_s)


@dataclass(slots=True)
class Trend:
    """Medians of drift in bins of BIN_S, newest last, and the bin that is still filling (up to `full_t`)."""

    times: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    filling: list[float] = field(default_factory=list)
    full_t: float = 0.0
    known: Slope | None = None
    known_at: float = 0.0
    """The slope as of the bin that ended then: it costs a pair of every two bins, and several families ask for it."""

    def add(self, t: float, drift_ms: float) -> None:
        """Take one sample; samples come in the order of time."""
        if t >= self.full_t:
            self.close(t)
        self.filling.append(drift_ms)

    def close(self, t: float) -> None:
        """Turn what is filling into a bin and begin the one that t is in."""
        if self.filling:
            self.times.append(self.full_t - BIN_S / 2)
            self.medians.append(median(self.filling))
            self.filling.clear()
        self.full_t = (t // BIN_S + 1) * BIN_S
        while self.times and (len(self.times) > BINS or self.times[0] < t - BIN_S * (BINS + 1)):
            del self.times[0], self.medians[0]

    def slope(self) -> Slope | None:
        """Return the median of the slopes between all pairs of bins; None while there are too few.

        Sen's interval (J. Am. Stat. Assoc. 63, 1968): of N sorted pair slopes of n points, those at ranks
        (N -+ z sqrt(n(n-1)(2n+5)/18)) / 2 bound the slope.
        """
        if self.known_at != self.full_t:
            self.known, self.known_at = self._slope(), self.full_t
        return self.known

    def _slope(self) -> Slope | None:
        times, medians = self.times, self.medians
        n = len(times)
        if n < MIN_BINS:
            return None
        slopes = sorted(
            (medians[j] - medians[i]) / (times[j] - times[i]) for i in range(n - 1) for j in range(i + 1, n)
        )
        spread = SIGMAS * sqrt(n * (n - 1) * (2 * n + 5) / 18)
        low, high = int((len(slopes) - spread) // 2), int((len(slopes) + spread) // 2 + 1)
        real = low >= 0 and high < len(slopes) and (slopes[low] > 0 or slopes[high] < 0)
        return Slope(median(slopes), real)
