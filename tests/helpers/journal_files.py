"""Real journal files, which systemd-journal-remote writes from the export format, and readers of them."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.waiting import wait_until
from omniwatch.sources import Source
from omniwatch.sources.journal import Journal

REMOTE = "/lib/systemd/systemd-journal-remote"
UNIT = "omni.service"
PATIENCE_S = 120.0
"""Within which a journal is read to its end: that may take a dozen journalctl, on a machine that is busy."""
BOOT_A, BOOT_B = "a" * 32, "b" * 32
Open = Callable[..., Journal]


def event(number: int, size: int = 0) -> bytes:
    return b'{"ev":"video","t":%d,"stream":"s","pts_ms":0,"pad":"%s"}' % (number, b"x" * size)


class Log:
    """A directory of journal files; time goes on by one millisecond an entry."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.file = directory / "system.journal"
        self.entries = 0

    def append(self, *messages: bytes, unit: str = UNIT, boot: str = BOOT_A) -> None:
        self.append_fields(*([("MESSAGE", message)] for message in messages), unit=unit, boot=boot)

    def append_fields(self, *entries: list[tuple[str, bytes]], unit: str = UNIT, boot: str = BOOT_A) -> None:
        export = b""
        for fields in entries:
            self.entries += 1
            export += (
                f"__REALTIME_TIMESTAMP={1_700_000_000_000_000 + 1000 * self.entries}\n"
                f"__MONOTONIC_TIMESTAMP={1_000_000 + 1000 * self.entries}\n"
                f"_BOOT_ID={boot}\n_SYSTEMD_UNIT={unit}\n"
            ).encode()
            for name, value in fields:
                export += name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
            export += b"\n"
        command = [REMOTE, f"--output={self.file}", "-"]
        subprocess.run(command, input=export, capture_output=True, check=True)

    def rotate(self) -> Path:
        old = self.directory / f"system@{self.entries}.journal"
        self.file.rename(old)
        return old


class Clock:
    """Seconds that go on only when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def readers(journal: Log) -> Iterator[Open]:
    """Give a function that opens a source on these files; all of them are closed at the end."""
    opened: list[Journal] = []

    def make(state: dict[str, Any] | None = None, unit: str = UNIT, **options: Any) -> Journal:
        options.setdefault("argv_prefix", ("journalctl", f"--directory={journal.directory}"))
        source = Journal(unit, **options)
        opened.append(source)
        if state is not None:
            source.restore(state)
        return source

    try:
        yield make
    finally:
        for source in opened:
            source.close()


def read_all(source: Source, budget: int = 1 << 20) -> list[bytes]:
    """Read until nothing is left."""
    got: list[bytes] = []
    wait_until(
        lambda: got.append(source.read(budget)) or source.caught_up, PATIENCE_S, f"the end; {source.error}"
    )
    return b"".join(got).splitlines()


def read_some(source: Source, budget: int) -> list[bytes]:
    """Read once, when there is something to read or nothing left."""
    got: list[bytes] = []
    wait_until(lambda: got.append(source.read(budget)) or got[-1] or source.caught_up, PATIENCE_S)
    return got[-1].splitlines()


def read_until(source: Source, count: int) -> list[bytes]:
    """Read at least `count` lines, however long the journal takes to show them."""
    got: list[bytes] = []
    wait_until(lambda: got.extend(source.read(1 << 20).splitlines()) or len(got) >= count, PATIENCE_S)
    return got
