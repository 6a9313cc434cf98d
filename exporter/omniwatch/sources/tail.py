"""Follow one path: each line once, across rotation, truncation and restarts.

What has been consumed is one position: a file, an offset in it, and the last bytes before that offset. Each read
compares these bytes with the file. If they differ, the file was rewritten: truncated, perhaps grown past the old offset
since, or its inode used anew. The position is then looked for in the copies beside it. If no copy has it, the rewritten
file is read from its first byte. Nothing is buffered: a line without an end stays in the file until it has one. So the
position after `read` is that of the bytes returned so far. A caller that saves it together with its own results counts
each line once.

A file the path no longer names is finished when a later one has content and the older, read after that was seen, has
no more. So nothing depends on time: a writer that still has the old file open (its log was rotated under it) is heard
until it writes to the new one. Then come the siblings rotated in between, oldest first, each from its first byte; a
copy of the finished file goes on where that ended. The position moves to the next file when its first line is
consumed, not before: a position without bytes before it could not tell when its file is truncated.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from omniwatch.sources import SourceError
from omniwatch.sources.position import CHUNK, STRIDE, Position
from omniwatch.sources.rotation import (
    UNREADABLE,
    File,
    MovedError,
    file_at,
    free_bytes,
    later,
    open_file,
    survey,
)

PASSED_PER_BUDGET = 8
"""Bytes that hold no line cost so much less than lines do."""


class Tail:
    """The source `tail:PATH`. `Source` says what its methods and attributes are.

    `rotations` and `truncations` count what happened to the file, `bytes_behind` is what the last `read` left unread.
    `invalid` is where to count, a dictionary shared with other tails or its own.
    """

    def __init__(self, path: Path, invalid: dict[str, int] | None = None) -> None:
        self.path = path
        self.name = f"tail:{path}"
        self.up = False
        self.error: str | None = None
        self.absent = False
        self.caught_up = False
        self.invalid = {"nul": 0, "oversize": 0, "truncated": 0} if invalid is None else invalid
        self.rotations = 0
        self.truncations = 0
        self.bytes_behind = 0
        self._at: Position | None = None
        self._fd = -1
        self._rewritten = False
        self._in_copy = False
        self._current: File | None = None
        self._later: list[File] = []

    @property
    def free_bytes(self) -> int | None:
        """Room left on the file system that the file is written to; None where there is none to be asked."""
        return free_bytes(self.path.parent)

    def read(self, budget: int) -> bytes:
        """Return whole lines; of bytes that hold none (a line too long, NULs) it passes a few times `budget` at most."""
        self.caught_up = False
        pieces: list[bytes] = []
        try:
            self._look()
            while budget > 0 and self._at:
                at, data = self._at, None
                if self._fd >= 0 or self._find(at):
                    if at.is_between_lines and (data := at.read(self._fd, STRIDE)) is not None:
                        passed = at.pass_over(data)
                        budget -= -(-passed // PASSED_PER_BUDGET)
                        if passed:
                            continue
                    data = at.read(self._fd, CHUNK)
                    if data is None:
                        budget -= CHUNK
                        self._let_go()
                        self._look()
                        continue
                    piece = at.cut(data, self.invalid)
                    if piece is not None:
                        pieces.append(piece)
                        budget -= len(data)
                        continue
                piece = self._go_on(at, data)
                if piece is None:
                    # Absent, but with siblings from before the first look: it may be amid a rotation.
                    self.caught_up = self.up or (self.absent and bool(at.ino or not at.mtime_ns))
                    break
                pieces.append(piece)
                budget -= len(piece)
            self._measure()
        except MovedError:
            pass
        except OSError as error:
            self._fail(error)
            self._let_go()
        return b"".join(pieces)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to read of what the path has, or had."""
        return self.caught_up or (self.absent and self._fd < 0)

    def finish(self) -> bytes:
        """Close for good, the path being gone: return the last line, if it is whole but for its end."""
        at, data = self._at, None
        try:
            data = at.read(self._fd, CHUNK) if at and self._fd >= 0 else None
        except OSError as error:
            self._fail(error)
        self.close()
        return at.cut_last(data, self.invalid) if at and data else b""

    def state(self) -> dict[str, Any]:
        """The position; empty before the path was first looked at."""
        return msgspec.structs.asdict(self._at) if self._at else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a position; its file is looked for at the next `read`. Raises SourceError if it is none."""
        try:
            at = msgspec.convert(state, Position) if state else None
        except msgspec.ValidationError as error:
            raise SourceError(f"{self.name}: not a position: {error}") from error
        self.close()
        self._at = at

    def close(self) -> None:
        """Close the file. A later `read` goes on where the last one stopped."""
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _fail(self, error: OSError) -> None:
        self.up, self.error = False, f"{self.path}: {error.strerror}"

    def _look(self) -> None:
        """See what the path leads to now and, where that is not the held file, what follows it."""
        self._later = []
        self.absent = False
        try:
            self._current = file_at(self.path)
            self.up, self.error = True, None
        except OSError as error:
            self._current = None
            self.absent = isinstance(error, FileNotFoundError)
            self._fail(error)
        at, now = self._at, self._current
        if at is None:
            if now or (self.absent and self.path.parent.is_dir()):
                # Siblings that were there before the first look are not to be read.
                there = survey(self.path).rotated
                self._at = Position(mtime_ns=max((file.mtime_ns + 1 for file in there), default=0))
        elif self._fd >= 0 and not (now and now.key == at.key):
            at.mtime_ns = os.fstat(self._fd).st_mtime_ns
            self._later = later(survey(self.path), at.key, at.mtime_ns)

    def _find(self, at: Position) -> bool:
        """Open the position's file again, or a copy of it; if there is none, see what was written after it."""
        held = at.key
        told_apart = at.knows_copies
        if told_apart and self._current and self._current.key == held and self._resume(self._current, at):
            return True
        seen = survey(self.path)
        if not told_apart and seen.is_in_doubt(held, at.mtime_ns):
            self._rewritten = False
            self._later = later(seen, None, at.mtime_ns)
            return False
        candidates = sorted(seen.newest_first, key=lambda file: file.key != held)
        self._rewritten = bool(candidates) and candidates[0].key == held
        if any(self._resume(file, at) for file in candidates):
            self._later = later(seen, at.key, at.mtime_ns)
            self._in_copy = self._rewritten and at.key != held
            self.truncations += self._in_copy
            return True
        self._later = later(seen, None, at.mtime_ns)
        return False

    def _resume(self, file: File, at: Position) -> bool:
        """Open a file at the position if it is there; a sibling that cannot be read is passed over."""
        if file.key != at.key and not at.knows_copies:
            return False
        try:
            self._fd = open_file(file)
            found = at.read(self._fd, 0) is not None
        except OSError as error:
            self._let_go()
            if file.path == self.path or error.errno not in UNREADABLE:
                raise
            return False
        if not found:
            self._let_go()
            return False
        at.dev, at.ino, at.mtime_ns = file.dev, file.ino, file.mtime_ns
        return True

    def _go_on(self, at: Position, data: bytes | None) -> bytes | None:
        """Leave the held file, if it is finished, and return the next one's first lines; None while it has none.

        `data` is what was read last of the held file, None if none is held. What cannot be read is passed over.
        """
        if data is not None and not any(file.size for file in self._later):
            return None
        passed: set[tuple[int, int]] = set()
        for index, file in enumerate(self._later):
            try:
                lines = self._begin(file, self._later[index + 1 :], at, data, passed)
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
                self._fail(error)
            else:
                if lines is not None or file.size:
                    return lines
            passed.add(file.key)
        return None

    def _begin(
        self, file: File, rest: list[File], at: Position, data: bytes | None, passed: set[tuple[int, int]]
    ) -> bytes | None:
        """Hold the next file and return the last line of the old and its own first; None if it has no line yet."""
        fd = open_file(file)
        try:
            if at.goes_on_in(fd):
                position, lines = msgspec.structs.replace(at, dev=file.dev, ino=file.ino), b""
            else:
                position = Position(file.dev, file.ino, mtime_ns=file.mtime_ns)
                head = position.read(fd, CHUNK) or b""
                if head:
                    self._check_order(file, at, passed)
                first = position.cut(head, self.invalid)
                if first is None and head and any(other.size for other in rest):
                    first = position.cut_last(head, self.invalid)
                if first is None:
                    return None
                lines = (at.cut_last(data, self.invalid) if data else b"") + first
            self._count_change(at, rest)
            self._let_go()
            self._at, self._fd, self._later = position, fd, rest
            return lines
        finally:
            if self._fd != fd:
                os.close(fd)

    def _check_order(self, file: File, at: Position, passed: set[tuple[int, int]]) -> None:
        """See whether the file that was just read still is the next. Raises MovedError.

        Had it been copied and truncated before it was read, the copy would now come first.
        """
        follow = later(survey(self.path), at.key if self._fd >= 0 else None, at.mtime_ns)
        if [other.key for other in follow if other.key not in passed][:1] != [file.key]:
            raise MovedError(errno.EAGAIN, "rotated while it was read")

    def _count_change(self, at: Position, rest: list[File]) -> None:
        if self._fd >= 0:
            self.rotations += not self._in_copy
            self._in_copy = self._in_copy and bool(rest)
        elif at.ino:
            self.truncations += self._rewritten
            self.rotations += not self._rewritten

    def _measure(self) -> None:
        """Take note of what is left, and when what was read had been written."""
        at, now = self._at, self._current
        if at and self._fd >= 0 and now and now.key == at.key:
            at.mtime_ns = now.mtime_ns
            self.bytes_behind = max(0, now.size - at.offset)
        else:
            left = os.fstat(self._fd).st_size - at.offset if at and self._fd >= 0 else 0
            self.bytes_behind = left + sum(file.size for file in self._later)
