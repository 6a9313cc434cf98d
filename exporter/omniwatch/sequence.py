"""What was lost and what was seen before, from the numbers that writers give their lines."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

MAX_WRITERS = 64
"""So many writers are remembered, those heard last; one that comes back after as many others is taken for new."""

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

    `lost` counts numbers that never came, `repeated` those that came again. `settled`: the source was once read to
    its end, so that a writer not met before is met from its first line; before that, one may have begun at any
    number, rotated away by then. Whoever reads the source sets it when that says `caught_up`.
    """

    writer: str | None = None
    """The writer of the last line …"""
    expected: int = 0
    """… and its next number; the others' are in `others`, longest silent first."""
    others: dict[str, int] = {}
    lost: int = 0
    repeated: int = 0
    settled: bool = False

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
        if number < self.expected:
            self.repeated += 1
            return False
        self.lost = min(self.lost + number - self.expected, MAX_LOST)
        self.expected = number + 1
        return True

    def _turn_to(self, writer: str, number: int) -> None:
        if self.writer is not None:
            self.others[self.writer] = self.expected
        self.writer = writer
        self.expected = self.others.pop(writer, 0 if self.settled else number)
        if len(self.others) >= MAX_WRITERS:
            del self.others[next(iter(self.others))]
