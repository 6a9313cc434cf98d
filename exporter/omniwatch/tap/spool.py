"""The event file: numbered lines, each appended in one piece, rotated by rename at a size bound."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

from omniwatch.events import Event, encode

MAX_BYTES = 16 * 2**20
KEEP = 2


class Spool:
    """One writer of the event file at `path`; several, also of other processes, may share it.

    Nothing is opened before the first `write`. Past `max_bytes` the file becomes `path.1`, that one `path.2`, and
    so on; `keep` old ones stay. `writer` is the `w` of every line, random unless given. Not for several threads.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, keep: int = KEEP, writer: str | None = None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep: expected at least 1 rotated file, got {keep}")
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        self.writer = writer or secrets.token_hex(8)
        self._next = 0
        self._fd = -1

    def skip(self, count: int) -> None:
        """Use up the numbers of `count` events that were dropped unwritten, so that the reader counts them lost."""
        self._next += count

    def write(self, event: Event) -> None:
        """Stamp `w` and `n` on the event and append it as one line.

        Raises OSError when the line could not be written whole; its number is used up all the same. What was written of it
        is taken back, or, where another process has written since, closed with a line end before the next line.
        """
        event.w, event.n = self.writer, self._next
        self._next += 1
        line = encode(event)
        size = self._at_path()
        if size and size + len(line) > self.max_bytes:
            self._rotate()
            size = self._at_path()
        # Read back rather than remembered: the half line may be another process's, or one of a run before this.
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        written = os.write(self._fd, line)
        if written < len(line):
            if os.fstat(self._fd).st_size == size + written:
                os.ftruncate(self._fd, size)
            raise OSError(errno.ENOSPC, f"{written} of {len(line)} bytes written", str(self.path))

    def close(self) -> None:
        """Let go of the file; a later `write` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _at_path(self) -> int:
        """Have the file open that stands at the path now (it may have been rotated or removed); return its size."""
        if self._fd >= 0:
            try:
                there = self.path.lstat()
            except FileNotFoundError:
                there = None
            if there and os.path.samestat(there, os.fstat(self._fd)):
                return there.st_size
            self.close()
        # Whoever may write the directory may not have another file of the server's grow: a link there is refused.
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        return os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        # Writers that share the file lock the same inode: the first renames, the others find the lock taken, or
        # another file at the path, and leave it alone. Nobody waits: a reader can hold a lock, too.
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if os.path.samestat(self.path.lstat(), os.fstat(self._fd)):
                for number in range(self.keep, 1, -1):
                    younger = self._rotated(number - 1)
                    if younger.exists():
                        younger.rename(self._rotated(number))
                self.path.rename(self._rotated(1))
        except FileNotFoundError:
            pass
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
