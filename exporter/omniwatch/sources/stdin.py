"""Read standard input, a pipe, a file or a terminal, as it arrives."""

from __future__ import annotations

import os
import select
import stat
from typing import Any

import msgspec

from omniwatch.events import MAX_LINE_BYTES
from omniwatch.sources import SourceError
from omniwatch.sources.lines import LineBuffer

CHUNK_BYTES = 65536


class Stdin:
    """A descriptor that others may share, hence polled before each read rather than made non-blocking.

    A line over 64 KiB is dropped and counted. When the input ends, a last line without an end is returned if it is
    whole JSON, else counted as truncated. From then on the source is down with the error "end of input", and nothing is
    left unread; the sidecar goes on serving. There is no position to remember: what was read is gone.

    Raises SourceError when the descriptor is closed or a directory.
    """

    name = "stdin"

    def __init__(self, fd: int = 0) -> None:
        try:
            kind = os.fstat(fd).st_mode
        except OSError as error:
            raise SourceError("-: standard input is closed; give it a pipe or a file") from error
        if stat.S_ISDIR(kind):
            raise SourceError("-: standard input is a directory; give it a pipe or a file")
        self.up = True
        self.error: str | None = None
        self.absent = False
        self.caught_up = False
        self.invalid: dict[str, int] = {}
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._lines = LineBuffer(MAX_LINE_BYTES)

    def read(self, budget: int) -> bytes:
        """Return the whole lines that have come, about `budget` bytes of them."""
        lines: list[bytes] = []
        # What is taken in counts, not what is returned: of a line that is being dropped nothing is.
        while self.up and budget > 0:
            self.caught_up = not self._poll.poll(0)
            if self.caught_up:
                break
            chunk = self._take(min(budget, CHUNK_BYTES))
            budget -= len(chunk)
            lines.append(self._lines.cut(chunk) if chunk else self._last_line())
        self._count("oversize", self._lines.oversize)
        self._lines.oversize = 0
        return b"".join(lines)

    def state(self) -> dict[str, Any]:
        """Return nothing: a pipe has no position."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Start with what comes: a pipe has no position."""

    def close(self) -> None:
        """Stop reading; the descriptor belongs to whoever opened it."""
        self._stop("closed")

    def _take(self, size: int) -> bytes:
        try:
            chunk = os.read(self._fd, size)
        except OSError as error:
            self._stop(error.strerror or str(error))
            return b""
        if not chunk:
            self._stop("end of input")
        return chunk

    def _stop(self, error: str) -> None:
        self.up, self.error, self.caught_up = False, error, True

    def _last_line(self) -> bytes:
        rest = self._lines.pending
        self._lines.clear()
        if not rest.strip():
            return b""
        try:
            msgspec.json.decode(rest, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._count("truncated", 1)
            return b""
        return rest + b"\n"

    def _count(self, reason: str, count: int) -> None:
        if count:
            self.invalid[reason] = self.invalid.get(reason, 0) + count
