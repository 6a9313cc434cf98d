"""What the device's sensors said while somebody was answered, second by second, as time that they took from the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

KEPT = 600
"""Samples kept: ten minutes in which somebody is answered."""
APART_S = 3.0
"""Two samples that are further apart say nothing of the time between."""
SWAP_S = 0.0001
"""Seconds that a page read back from swap takes, on flash."""
RECLAIM_S = 0.01
"""Seconds that an allocation takes that has to free memory first."""
SENSORS = ("quota", "heat", "memory")
"""What may take time from the server; each is also a cause."""


class Sample(msgspec.Struct, omit_defaults=True):
    """One reading. Counters only grow; what this kernel or board does not say is None, never 0."""

    t: float
    speaking: int = 0
    """Turns that were being answered."""
    throttled_s: float | None = None
    """Counter: the server's time without a CPU for having used its quota, or that of a slice it is in."""
    clock: float | None = None
    """Share left of the clocks while heat or power hold them down, else 1."""
    stalled_s: float | None = None
    """Counter: time in which some process waited for memory (PSI)."""
    swapped: int | None = None
    """Counter: pages read back from swap."""
    reclaims: int | None = None
    """Counter: allocations that had to free memory first."""


class Spell(NamedTuple):
    """Time between two samples, and what was lost in it, in s; None where there is no sensor."""

    begin_t: float
    end_t: float
    quota: float | None
    heat: float | None
    memory: float | None


class Samples:
    """The newest spells. `most` bounds them; None, for a recording: all."""

    def __init__(self, samples: Iterable[Sample] = (), most: int | None = KEPT) -> None:
        self._spells: deque[Spell] = deque(maxlen=most)
        self._last: Sample | None = None
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Take the next reading."""
        last, self._last = self._last, sample
        if last is not None and 0 < sample.t - last.t <= APART_S:
            self._spells.append(_between(last, sample))

    def within(self, begin_t: float, end_t: float) -> Iterator[Spell]:
        """Return the spells that reach into a time, the oldest first."""
        return (spell for spell in self._spells if spell.end_t > begin_t and spell.begin_t < end_t)


def _between(a: Sample, b: Sample) -> Spell:
    length_s = b.t - a.t

    def lost(seconds: float | None) -> float | None:
        return None if seconds is None else round(max(0.0, min(seconds, length_s)), 3)

    waits = [
        None if more is None else more * cost
        for more, cost in (
            (_more(a.stalled_s, b.stalled_s), 1.0),
            (_more(a.swapped, b.swapped), SWAP_S),
            (_more(a.reclaims, b.reclaims), RECLAIM_S),
        )
    ]
    clocks = [clock for clock in (a.clock, b.clock) if clock is not None]
    return Spell(
        a.t,
        b.t,
        lost(_more(a.throttled_s, b.throttled_s)),
        lost(length_s * (1 - sum(clocks) / len(clocks)) if clocks else None),
        lost(max((wait for wait in waits if wait is not None), default=None)),
    )


def _more(before: float | None, now: float | None) -> float | None:
    """Return by how much a counter grew; None where it is not there, or began anew."""
    return None if before is None or now is None or now < before else now - before
