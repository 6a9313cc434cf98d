"""What the tests of the tail share: numbered lines, and a reader that keeps its accounts as the sidecar does."""

from __future__ import annotations

import copy
import ctypes
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from omniwatch.events import Invalid, Unknown, decode_lines
from omniwatch.ingest.sequence import SequenceTracker
from omniwatch.sources import Source

MUCH = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
CAPABILITY_VERSION = 0x20080522
READS_EVERYTHING = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


def line(number: int, writer: str = "a", pad: int = 0) -> bytes:
    """One event of the contract, with its end; `pad` makes it longer."""
    return b'{"ev":"video","t":1,"stream":"s","w":"%s","n":%d,"pts_ms":0,"pad":"%s"}\n' % (
        writer.encode(),
        number,
        b"-" * pad,
    )


def lines(numbers: Iterable[int], writer: str = "a") -> bytes:
    return b"".join(line(number, writer) for number in numbers)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def aged(path: Path, seconds: int) -> None:
    """Set the time of the last write, in seconds from a time long ago."""
    os.utime(path, (10**9 + seconds, 10**9 + seconds))


class _Capabilities(ctypes.Structure):
    """Linux' header and data of capget(2) and capset(2), version 3."""

    _fields_ = (
        *(("version", ctypes.c_uint32), ("pid", ctypes.c_int)),
        *(
            (name, ctypes.c_uint32)
            for name in ("effective", "permitted", "inheritable", "higher", "high", "highest")
        ),
    )


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: do without that right for a while, in this thread and those that it starts.

    The user stays root: the clone may be where nobody else may look.
    """
    before, after = _Capabilities(CAPABILITY_VERSION), _Capabilities(CAPABILITY_VERSION)
    for one in (before, after):
        _call("capget", one)
    after.effective &= ~READS_EVERYTHING
    _call("capset", after)
    try:
        yield
    finally:
        _call("capset", before)


def _call(name: str, capabilities: _Capabilities) -> None:
    data = ctypes.byref(capabilities, _Capabilities.effective.offset)
    if getattr(LIBC, name)(ctypes.byref(capabilities), data) != 0:
        raise OSError(ctypes.get_errno(), name)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody may search, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


def drain(source: Source, budget: int = MUCH) -> bytes:
    """Read until nothing is left."""
    pieces = [source.read(budget)]
    while not source.caught_up:
        pieces.append(source.read(budget))
        assert len(pieces) < 20_000, "it never ends"
    return b"".join(pieces)


def rename_rotation(path: Path) -> None:
    """Rotate as the spool does, but keep all: path.2 becomes path.3, path.1 path.2, the path itself path.1."""
    _shift(path)
    path.rename(path.with_name(path.name + ".1"))


def copytruncate(path: Path) -> None:
    """Rotate as logrotate's option of that name does: the copy keeps the content, the file its inode."""
    _shift(path)
    shutil.copyfile(path, path.with_name(path.name + ".1"))
    os.truncate(path, 0)


def _shift(path: Path) -> None:
    names = [path.with_name(f"{path.name}.{number}") for number in range(1, 1000)]
    count = next(count for count, name in enumerate(names) if not name.exists())
    for number in range(count, 0, -1):
        names[number - 1].rename(names[number])


class Reader:
    """A source with the accounts that the sidecar keeps of it: each event by (writer, number)."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.counts: Counter[tuple[str | None, int]] = Counter()
        self.invalid: Counter[str] = Counter()
        self.sequence = SequenceTracker()

    def read(self, budget: int = MUCH) -> None:
        events = []
        for event in decode_lines(self.source.read(budget)):
            assert not isinstance(event, Unknown)
            if isinstance(event, Invalid):
                self.invalid[event.reason] += 1
            else:
                events.append(event)
        self.counts.update((event.w, event.n) for event in self.sequence.fresh(events))
        if self.source.caught_up:
            self.sequence.settled = True

    def drain(self, budget: int = MUCH) -> None:
        self.read(budget)
        while not self.source.caught_up:
            self.read(budget)

    def save(self) -> Saved:
        """Return what a checkpoint of this moment holds."""
        return copy.deepcopy(Saved(self.source.state(), self.counts, self.invalid, self.sequence))


class Saved(NamedTuple):
    position: dict[str, Any]
    counts: Counter[tuple[str | None, int]]
    invalid: Counter[str]
    sequence: SequenceTracker

    def resume(self, source: Source) -> Reader:
        """Go on from here with a new source, as often as one likes."""
        reader = Reader(source)
        position, reader.counts, reader.invalid, reader.sequence = copy.deepcopy(self)
        source.restore(position)
        return reader
