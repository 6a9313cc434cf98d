"""Count lost and repeated lines by the numbers that writers give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

MAX_WRITERS = 64
"""Number of writers tracked; the least recently seen is evicted. An evicted writer that returns counts as new."""

MAX_GAP = 100_000
"""Numbers left out at once that are believed at first sight: more than a writer's queue and its rotated files hold."""

MAX_NUMBER = 2**53
"""The contract's bound of `n`."""
MAX_LOST = 2**63 - 1
"""What a checkpoint can hold."""


class Numbered(Protocol):
    """An event, or a line of an unknown kind: its writer, if that numbers its lines, and its number."""

    w: str | None
    n: int


Line = TypeVar("Line", bound=Numbered)


class SequenceTracker(msgspec.Struct):
    """The number each writer of a source is expected to use next. It is its own checkpoint: encode it, decode it.

    `lost` counts numbers that never came, `repeated` those that came again. `settled`: the source was once
    read to its end, so a new writer is met from its first line. Before that, a writer's first lines may have been rotated
    away, and it may begin at any number. The reader of the source sets it when the source says `caught_up`.
    """

    writer: str | None = None
    """The writer of the last line …"""
    expected: int = 0
    """… and its next number; the others' are in `others`, longest silent first."""
    others: dict[str, int] = {}
    lost: int = 0
    repeated: int = 0
    settled: bool = False
    doubts: dict[str, int] = {}
    """Of writers whose last number was too far ahead to be believed, the number after it: the next line confirms it or not."""

    @property
    def writers(self) -> dict[str, int]:
        """Each writer's next number, longest silent first."""
        return self.others if self.writer is None else {**self.others, self.writer: self.expected}

    def fresh(self, lines: list[Line]) -> list[Line]:
        """Return the lines not seen before, in order; of writers that do not number theirs, all."""
        writer, expected = self.writer, self.expected
        again: set[int] = set()
        for line in lines:
            if line.n == expected and line.w == writer:
                expected += 1
            elif line.w is not None:
                self.expected = expected
                if not self.observe(line.w, line.n):
                    again.add(id(line))
                writer, expected = self.writer, self.expected
        self.expected = expected
        return [line for line in lines if id(line) not in again] if again else lines

    def observe(self, writer: str, number: int) -> bool:
        """Take note of one line; return whether it is new. A number out of bounds says nothing."""
        if not 0 <= number <= MAX_NUMBER:
            return True
        if writer != self.writer:
            self._turn_to(writer, number)
        doubted = self.doubts.pop(writer, None)
        if doubted is not None and 0 <= number - doubted <= MAX_GAP:
            self._lose(doubted - 1 - self.expected)
            self.expected = doubted
        if number < self.expected:
            self.repeated += 1
            return False
        if number - self.expected > MAX_GAP:
            self.doubts[writer] = number + 1
            if len(self.doubts) > MAX_WRITERS:
                del self.doubts[next(iter(self.doubts))]
            return True
        self._lose(number - self.expected)
        self.expected = number + 1
        return True

    def learn(self, writers: Mapping[str, int]) -> None:
        """Take over what another source of the same lines has read: they come again here, and are not lost."""
        for writer, number in writers.items():
            if writer == self.writer:
                self.expected = max(self.expected, number)
            else:
                self.others[writer] = max(number, self.others.pop(writer, 0))
        while len(self.others) > MAX_WRITERS:
            del self.others[next(iter(self.others))]

    def _lose(self, count: int) -> None:
        self.lost = min(self.lost + count, MAX_LOST)

    def _turn_to(self, writer: str, number: int) -> None:
        if self.writer is not None:
            self.others[self.writer] = self.expected
        self.writer = writer
        self.expected = self.others.pop(writer, 0 if self.settled else number)
        if len(self.others) >= MAX_WRITERS:
            del self.others[next(iter(self.others))]
