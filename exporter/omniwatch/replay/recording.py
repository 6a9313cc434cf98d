"""A recorded event file as a source: plain, gzipped or standard input, read once from its first byte to its end."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from pathlib import Path
from typing import Any

from omniwatch.sources import SourceError
from omniwatch.sources.lines import LineBuffer
from omniwatch.system import user_file


class Recording:
    """A source that ends: `caught_up` is True once all was read. `path` may be "-". Raises SourceError."""

    name = "replay"
    up = True
    error: str | None = None
    absent = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.caught_up = False
        self.invalid = {"oversize": 0}
        self._lines = LineBuffer()
        try:
            self._raw = (
                io.FileIO(sys.stdin.fileno(), closefd=False)
                if path == "-"
                else io.FileIO(user_file.open_regular(Path(path)))
            )
            self.size = os.fstat(self._raw.fileno()).st_size
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror or error}") from error
        self._file = gzip.GzipFile(fileobj=self._raw) if path.endswith(".gz") else self._raw

    @property
    def position(self) -> int:
        """How far into the file it has been read, in bytes as they are stored."""
        return self._raw.tell() if self.size else 0

    def read(self, budget: int) -> bytes:
        """Return the next whole lines, about `budget` bytes of them. Raises SourceError."""
        try:
            chunk = self._file.read(budget)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error
        if chunk:
            lines = self._lines.cut(chunk)
        else:
            self.caught_up = True
            lines = self._lines.pending and self._lines.pending + b"\n"
            self._lines.clear()
        self.invalid["oversize"] += self._lines.oversize
        self._lines.oversize = 0
        return lines

    def state(self) -> dict[str, Any]:
        """Return nothing: a replay is not taken up again."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Start at the first byte."""

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self._raw.close()
