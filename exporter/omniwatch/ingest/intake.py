"""Apply each event of a source to the stream table once, and count every line that was not applied."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from omniwatch.core.streams import StreamTable
from omniwatch.events import EV_OF, REASONS, Invalid, Unknown, decode_lines
from omniwatch.ingest.sequence import SequenceTracker
from omniwatch.sources import Source


class Counts(msgspec.Struct):
    """What came out of one source so far."""

    events: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys([*EV_OF.values(), "unknown"], 0)
    )
    invalid: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    last_t: float = 0.0


class Saved(msgspec.Struct):
    """An intake's part of a checkpoint: it and the table's state are of the same moment."""

    position: dict[str, Any]
    sequence: SequenceTracker
    counts: Counts
    seen: bool = False


class Intake:
    """One source, read in steps. Nothing here waits or looks at a clock."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.counts = Counts()
        self.sequence = SequenceTracker()
        self.last_invalid: Invalid | None = None
        """The last line refused, for the log; whoever reports it sets it back to None."""
        self.seen = False
        """Whether the source could be read since this machine was started."""

    def step(self, table: StreamTable, budget: int) -> bool:
        """Read about `budget` bytes and apply them; return whether to read on without a pause.

        That is so when the source returned lines, and when it has more to read, though no whole line yet.
        """
        chunk = self.source.read(budget)
        if chunk:
            self._take(chunk, table)
        self.seen |= self.source.up
        dropped = self.source.invalid
        for reason, count in dropped.items():
            self.counts.invalid[reason] += count
            dropped[reason] = 0
        self.sequence.settled |= self.source.caught_up
        return bool(chunk) or (self.source.up and not self.source.caught_up)

    def _take(self, chunk: bytes, table: StreamTable) -> None:
        lines: list[Any] = decode_lines(chunk)
        kinds = Counter(map(type, lines))
        if kinds.pop(Invalid, 0):
            self._refuse([line for line in lines if type(line) is Invalid])
            lines = [line for line in lines if type(line) is not Invalid]
        fresh = self.sequence.fresh(lines)
        if len(fresh) < len(lines):
            kinds = Counter(map(type, fresh))
        counts = self.counts
        for kind, count in kinds.items():
            counts.events[EV_OF.get(kind, "unknown")] += count
        if Unknown in kinds:
            fresh = [event for event in fresh if type(event) is not Unknown]
        if fresh:
            table.apply_all(fresh, self.name)
            counts.last_t = fresh[-1].t

    def _refuse(self, lines: list[Invalid]) -> None:
        for line in lines:
            self.counts.invalid[line.reason] += 1
        self.last_invalid = lines[-1]

    @property
    def blind(self) -> bool:
        """Whether what is there, or was, cannot be read. A server that has not spoken yet has nothing there."""
        return not self.source.up and (self.seen or not self.source.absent)

    def lag_s(self, now: float) -> float:
        """Return how far behind the server's present the reader is, in seconds."""
        return 0.0 if self.source.caught_up or not self.counts.last_t else max(0.0, now - self.counts.last_t)

    def save(self) -> Saved:
        """Return what `restore` needs to go on from here."""
        return Saved(self.source.state(), self.sequence, self.counts, self.seen)

    def restore(self, saved: Saved, *, same_boot: bool) -> None:
        """Go on where a former run stopped, in this start of the machine or, the spool gone with its memory, in another."""
        self.source.restore(saved.position)
        self.sequence = saved.sequence
        self.counts = saved.counts
        self.seen = saved.seen and same_boot
