"""Follow every path that matches a pattern, as one source."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omniwatch.sources import SourceError, is_pattern
from omniwatch.sources.rotation import bases, is_compressed
from omniwatch.sources.tail import Tail

GLOB_INTERVAL_S = 1.0
"""How often new paths are looked for, and how long a path must be gone to be let go."""


class Tails:
    """The source `tail:PATTERN`: one Tail a path, rotated siblings and second names of a file left out.

    Attributes are those of Tail, over all paths; it is up while all of them are and there is one. `clock` counts
    seconds. Raises SourceError for a pattern that cannot be.
    """

    def __init__(self, pattern: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.pattern = pattern
        self.name = f"tail:{pattern}"
        self.up = False
        self.error: str | None = None
        self.absent = False
        self.caught_up = False
        self.invalid = {"nul": 0, "oversize": 0, "truncated": 0}
        self.rotations = 0
        self.truncations = 0
        self.bytes_behind = 0
        self._clock = clock
        self._globbed_at: float | None = None
        self._tails: dict[Path, Tail] = {}
        self._gone: set[Path] = set()
        if any("**" in part and part != "**" for part in Path(pattern).parts):
            raise SourceError(
                f'{self.name}: "**" stands for whole folders, as in **/*.jsonl; within a name write "*"'
            )

    @property
    def free_bytes(self) -> int | None:
        """The least of the room left to the paths."""
        return min(
            (room for tail in self._tails.values() if (room := tail.free_bytes) is not None), default=None
        )

    def read(self, budget: int) -> bytes:
        """Return whole lines of each path in turn; who was read last comes last the next time."""
        pieces = self._match()
        for path in list(self._tails):
            if budget <= 0:
                break
            piece = self._read(path, budget)
            pieces.append(piece)
            budget -= len(piece)
        tails = self._tails.values()
        self.caught_up = budget > 0 and all(tail.caught_up for tail in tails)
        self.up = bool(tails) and all(tail.up for tail in tails)
        self.error = next((tail.error for tail in tails if not tail.up), None)
        self.absent = not self.up and all(tail.absent for tail in tails if not tail.up)
        if not tails:
            refused = _refused(self.pattern)
            self.absent, self.error = refused is None, refused or f"{self.pattern}: no file matches"
        self.bytes_behind = sum(tail.bytes_behind for tail in tails)
        return b"".join(pieces)

    def state(self) -> dict[str, Any]:
        """The state of each path's Tail."""
        return {str(path): tail.state() for path, tail in self._tails.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the position in each path. Raises SourceError if one is none; then none is taken up."""
        tails = {Path(path): Tail(Path(path), self.invalid) for path in state}
        for path, position in state.items():
            tails[Path(path)].restore(position)
        self.close()
        self._tails = tails

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails.values():
            tail.close()

    def _read(self, path: Path, budget: int) -> bytes:
        tail = self._tails.pop(path)
        self._tails[path] = tail
        rotations, truncations = tail.rotations, tail.truncations
        piece = tail.read(budget)
        self.rotations += tail.rotations - rotations
        self.truncations += tail.truncations - truncations
        return piece

    def _match(self) -> list[bytes]:
        """Bring the Tails in line with the paths that there are; return last lines of those let go."""
        now = self._clock()
        if self._globbed_at is not None and now < self._globbed_at + GLOB_INTERVAL_S:
            return []
        self._globbed_at = now
        wanted = to_follow(glob(self.pattern), set(self._tails))
        for path in sorted(wanted - self._tails.keys()):
            self._tails[path] = Tail(path, self.invalid)
        gone = self._tails.keys() - wanted
        over = {path for path in gone & self._gone if self._tails[path].is_over}
        last_lines = [self._tails.pop(path).finish() for path in sorted(over)]
        self._gone = gone - over
        return last_lines


def _refused(pattern: str) -> str | None:
    """Say why the folder that a pattern begins in cannot be listed; None where it can be, or is not there yet."""
    parts = Path(pattern).parts
    fixed = Path(*itertools.takewhile(lambda part: not is_pattern(part), parts))
    try:
        os.scandir(fixed).close()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{fixed}: {error.strerror}"
    return None


def glob(pattern: str) -> set[Path]:
    """List the paths that match."""
    path = Path(pattern)
    return set(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def to_follow(found: set[Path], known: set[Path]) -> set[Path]:
    """Leave out rotated and compressed siblings of a path, links to one, and directories.

    `known` paths count as there even in the moment of their rotation, when they are not.
    """
    stems = found | known
    return {
        path
        for path in found
        if not is_compressed(path.name)
        and not path.is_dir()
        and not any(path.with_name(base) in stems for base in bases(path.name))
        and not (path.is_symlink() and path.resolve() in stems)
    }
