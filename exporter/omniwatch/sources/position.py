"""A position in a followed file: file, offset, and the bytes before it, by which the place is recognised."""

from __future__ import annotations

import os
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from omniwatch.events import MAX_LINE_BYTES

OVERLAP = 1024
"""So many bytes before the offset tell a file from another in its place: some lines, as ends of lines can be alike."""
DISTINCT = 16
"""So many different bytes any event has."""
CHUNK = MAX_LINE_BYTES + 1
"""Bytes to ask of a file at a time: without a line end in so many, the line is too long; with one, no line can be."""

STRIDE = 2**17
"""Bytes to ask for at a time where none of them is returned: in a run of NULs, in a line that is too long."""

_ZEROS = bytes(STRIDE)
_NULS = re.compile(rb"\0+")
_NULS_AND_ENDS = re.compile(rb"\n*\0[\0\n]*")
_LINE_END = re.compile(rb"[\0\n]")


class Position(msgspec.Struct):
    """The bytes of the file up to `offset` are consumed; `overlap` is the last of them.

    `skipping`: the offset is inside a line that is too long. `mtime_ns`: the file's last write, when last looked at.
    An inode of 0 stands for the time before the path had a file: what was written since `mtime_ns` is to be read.
    """

    dev: Annotated[int, Meta(ge=0)] = 0
    ino: Annotated[int, Meta(ge=0)] = 0
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0
    overlap: bytes = b""
    skipping: bool = False
    mtime_ns: int = 0

    def __post_init__(self) -> None:
        if len(self.overlap) != min(self.offset, OVERLAP):
            raise ValueError(f"{len(self.overlap)} bytes stand for the {self.offset} before the offset")

    @property
    def key(self) -> tuple[int, int]:
        """The file, as `rotation.File.key`."""
        return self.dev, self.ino

    @property
    def knows_copies(self) -> bool:
        """Whether a file with the same bytes before the same offset must be a copy: blank lines would not do."""
        return len(set(self.overlap)) >= DISTINCT

    @property
    def is_between_lines(self) -> bool:
        """Whether what follows is, as far as one knows, no line: more of a line that is too long, or of a run of NULs."""
        return self.skipping or self.overlap.endswith(b"\0")

    def pass_over(self, data: bytes) -> int:
        """Consume what of `data`, which `read` returned, is no line; return how many bytes. Counts nothing: `cut` has."""
        first = end = len(self.overlap)
        if self.skipping:
            stops = [at for at in (data.find(b"\n", first), data.find(b"\0", first)) if at >= 0]
            # Its end is left to `cut`.
            end = min(stops, default=len(data))
        elif self.overlap.endswith(b"\0"):
            nothing_else = data.startswith(_ZEROS, first)
            end = len(data) if nothing_else else len(data) - len(data[first:].lstrip(b"\0"))
        if end > first:
            self._move(data, end)
        return end - first

    def read(self, fd: int, size: int) -> bytes | None:
        """Read the overlap and `size` bytes past it; None where the overlap is no longer what it was."""
        before = len(self.overlap)
        data = os.pread(fd, before + size, self.offset - before)
        return data if data.startswith(self.overlap) else None

    def goes_on_in(self, fd: int) -> bool:
        """Tell whether another file is a copy of this one, as far as this was consumed."""
        try:
            return self.knows_copies and self.read(fd, 0) is not None
        except OSError:
            return False

    def cut(self, data: bytes, invalid: dict[str, int]) -> bytes | None:
        """Consume and return the whole lines of what `read` returned; None if that is not possible yet.

        A run of NUL bytes ends a line and is not returned. A line that is too long is consumed without being
        returned, at once or by the following calls. Each is counted once in `invalid`.
        """
        first = start = len(self.overlap)
        end = max(data.rfind(b"\n", first), data.rfind(b"\0", first)) + 1
        if not end:
            return self._cut_endless(data, invalid)
        if self.skipping:
            skipped = _LINE_END.search(data, first)
            start = skipped.end() if skipped else end
            self.skipping = False
        text = data[start:end]
        if data.find(b"\0", first, end) >= 0:
            goes_on = data[first] == 0 and self.overlap.endswith(b"\0")
            invalid["nul"] += len(_NULS.findall(data, first, end)) - goes_on
            text = _NULS_AND_ENDS.sub(b"\n", text).lstrip(b"\n")
        self._move(data, end)
        return text

    def _cut_endless(self, data: bytes, invalid: dict[str, int]) -> bytes | None:
        size = len(data) - len(self.overlap)
        if not self.skipping:
            if size <= MAX_LINE_BYTES:
                return None
            invalid["oversize"] += 1
            self.skipping = True
        self._move(data, len(data))
        return b"" if size else None

    def cut_last(self, data: bytes, invalid: dict[str, int]) -> bytes:
        """Consume what `cut` left of a file that is finished, and return it if it is a line but for its end."""
        line = data[len(self.overlap) :]
        self._move(data, len(data))
        if not line.strip():
            return b""
        try:
            msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            invalid["truncated"] += 1
            return b""
        return line + b"\n"

    def _move(self, data: bytes, end: int) -> None:
        self.offset += end - len(self.overlap)
        self.overlap = data[max(0, end - OVERLAP) : end]
