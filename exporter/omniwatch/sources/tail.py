"""Follow one path: each line once, across rotation, truncation and restarts.

What has been consumed is one position: a file, an offset in it, and the last bytes before that offset. Each read
takes these bytes again: where they are no longer the same, the file was rewritten (truncated, perhaps grown past the
old offset since, or its inode used anew), and the position is looked for in the copies beside it, else the file is
read from its first byte. Nothing is buffered: a line without an end stays in the file until it has one, so the
position after `read` is that of the bytes returned so far, and whoever saves it together with what came of them
counts each line once.

A file the path no longer names is finished when a later one has its first byte and the older, read after that was
seen, has no more. So nothing depends on time: a writer that still has the old file open (its log was rotated under
it) is heard until it writes to the new one. Then come the siblings rotated in between, oldest first, each from its
first byte; a copy of the finished file goes on where that ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from omniwatch.sources import SourceError
from omniwatch.sources.position import CHUNK, Position
from omniwatch.sources.rotation import UNREADABLE, File, MovedError, file_at, later, open_file, survey


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
        self.caught_up = False
        self.invalid = {"nul": 0, "oversize": 0, "truncated": 0} if invalid is None else invalid
        self.rotations = 0
        self.truncations = 0
        self.bytes_behind = 0
        self._at: Position | None = None
        self._fd = -1
        self._absent = False
        self._in_copy = False
        self._current: File | None = None
        self._later: list[File] = []

    def read(self, budget: int) -> bytes:
        """Return whole lines; of bytes that hold none (a line too long, NULs) it passes about `budget` at most."""
        self.caught_up = False
        pieces: list[bytes] = []
        try:
            self._look()
            while budget > 0:
                at = self._hold()
                if at is None:
                    self.caught_up = self._absent and self._at == Position()
                    break
                data = at.read(self._fd, CHUNK)
                if data is None:
                    budget -= CHUNK
                    self._let_go()
                    self._look()
                    continue
                before = at.offset
                piece = at.cut(data, self.invalid)
                if piece is not None:
                    pieces.append(piece)
                    budget -= at.offset - before
                elif not any(file.size for file in self._later):
                    self.caught_up = self.up or self._absent
                    break
                elif (piece := self._advance(at, data)) is not None:
                    pieces.append(piece)
                else:
                    break
            self._measure()
        except MovedError:
            pass
        except OSError as error:
            self._fail(error)
            self._pass_over(error)
        return b"".join(pieces)

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
        """See what the path leads to now and, where that is not the held file, what lies between the two."""
        self._later = []
        self._absent = False
        try:
            self._current = file_at(self.path)
            self.up, self.error = True, None
        except OSError as error:
            self._current = None
            self._absent = isinstance(error, FileNotFoundError)
            self._fail(error)
        at, now = self._at, self._current
        if at is None:
            if self._absent and self.path.parent.is_dir():
                self._note_absence()
        elif self._fd >= 0 and not (now and now.key == at.key):
            at.mtime_ns = os.fstat(self._fd).st_mtime_ns
            self._later = later(survey(self.path), at.key, at.mtime_ns)

    def _note_absence(self) -> None:
        """Remember which siblings were there before the file was: what comes later is to be read."""
        seen = survey(self.path)
        if not seen.current:
            self._at = Position(mtime_ns=max((file.mtime_ns + 1 for file in seen.rotated), default=0))

    def _hold(self) -> Position | None:
        """Make sure that the position's file is open; None while there is none."""
        if self._fd < 0:
            if self._at:
                self._find(self._at)
            elif self._current:
                self._begin(self._current)
        return self._at if self._fd >= 0 else None

    def _begin(self, file: File) -> None:
        self._fd = open_file(file)
        self._at = Position(file.dev, file.ino, mtime_ns=file.mtime_ns)

    def _find(self, at: Position) -> None:
        """Find the position's file again, or a copy of it, or else begin with what was written after it."""
        held = at.key
        if self._current and self._current.key == held and self._resume(self._current, at):
            return
        seen = survey(self.path)
        candidates = sorted(seen.newest_first, key=lambda file: file.key != held)
        rewritten = bool(candidates) and candidates[0].key == held
        if any(self._resume(file, at) for file in candidates):
            self._later = later(seen, at.key, at.mtime_ns)
            self._in_copy = rewritten and at.key != held
            self.truncations += self._in_copy
            return
        self._later = later(seen, None, at.mtime_ns)
        file = self._open_next()
        if file:
            self._at = Position(file.dev, file.ino, mtime_ns=file.mtime_ns)
            self.truncations += rewritten
            self.rotations += at.ino > 0 and not rewritten

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

    def _open_next(self) -> File | None:
        """Open the first of the later files that can be, in place of the held one; None if there is none."""
        while self._later:
            file = self._later.pop(0)
            try:
                fd = open_file(file)
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
                self._fail(error)
            else:
                self._let_go()
                self._fd = fd
                return file
        return None

    def _advance(self, at: Position, data: bytes) -> bytes | None:
        """Leave the finished file, of which `data` is the rest, for the next; None if that cannot be opened."""
        file = self._open_next()
        if file is None:
            return None
        self.rotations += not self._in_copy
        self._in_copy = self._in_copy and bool(self._later)
        if at.goes_on_in(self._fd):
            at.dev, at.ino, at.mtime_ns = file.dev, file.ino, file.mtime_ns
            return b""
        self._at = Position(file.dev, file.ino, mtime_ns=file.mtime_ns)
        return at.cut_last(data, self.invalid)

    def _pass_over(self, error: OSError) -> None:
        """Leave a rotated file that cannot be read for the next; the path's own is opened anew at the next `read`."""
        at = self._at
        rotated = at and self._fd >= 0 and self._later and error.errno in UNREADABLE
        try:
            if not (at and rotated and self._advance(at, at.overlap) is not None):
                self._let_go()
        except OSError:
            self._let_go()

    def _measure(self) -> None:
        """Take note of what is left, and when what was read had been written."""
        at, now = self._at, self._current
        if at and now and now.key == at.key:
            at.mtime_ns = now.mtime_ns
            self.bytes_behind = max(0, now.size - at.offset)
        elif at and self._fd >= 0:
            rest = os.fstat(self._fd).st_size - at.offset
            self.bytes_behind = rest + sum(file.size for file in self._later)
        else:
            self.bytes_behind = now.size if now else 0
