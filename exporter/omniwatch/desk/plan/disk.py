"""Measure how fast a disk is read, past the page cache, and what reloading parts of a model from it would cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import msgspec

from omniwatch.desk.plan.memory import Result
from omniwatch.desk.plan.model import PlanError

BLOCK = 8 * 2**20
MOST_BYTES = 2 * 2**30
MOST_S = 10.0
LEAST_BYTES = 64 * 2**20
"""Less is read in too short a time to say anything."""
ALIGNED = 4096


class Speed(msgspec.Struct, frozen=True):
    """How fast one large file was read, in sequence. `direct`: past the page cache, as a first load is."""

    path: str
    bytes: int
    seconds: float
    direct: bool

    @property
    def bytes_s(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds


def largest(directory: Path) -> Path:
    """Find the largest file below a directory. Raises PlanError, OSError."""
    if not directory.is_dir():
        raise PlanError(f"{directory}: not a directory")
    found = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    path = max(found, key=lambda file: file.stat().st_size, default=None)
    if path is None or path.stat().st_size < LEAST_BYTES:
        raise PlanError(f"{directory}: no file of at least {LEAST_BYTES // 2**20} MiB in it to read")
    return path


def measure(
    path: Path, progress: Callable[[int, int], None], *, most_bytes: int = MOST_BYTES, most_s: float = MOST_S
) -> Speed:
    """Read a file for at most `most_bytes` or `most_s`; `progress` is told bytes read and to read. Raises OSError."""
    direct = True
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # tmpfs and some network file systems refuse
        direct = False
        file = os.open(path, os.O_RDONLY)
    try:
        total = min(os.fstat(file).st_size, most_bytes) // ALIGNED * ALIGNED
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = mmap(-1, BLOCK)  # aligned to a page, as O_DIRECT wants it
        view = memoryview(buffer)
        done, began = 0, time.monotonic()
        while done < total and (got := os.readv(file, [view[: min(BLOCK, total - done)]])):
            done += got
            progress(done, total)
            if time.monotonic() - began > most_s:
                break
        seconds = time.monotonic() - began
        view.release()
        buffer.close()
    finally:
        os.close(file)
    return Speed(str(path), done, max(seconds, 1e-9), direct)


class Reload(msgspec.Struct, frozen=True):
    """A part that would be loaded anew, and how long that takes at least."""

    words: str
    bytes: int
    seconds: float


def reloads(result: Result, bytes_s: float) -> list[Reload]:
    """Compute what loading each stage's weights from the disk takes: bytes by speed, nothing else."""
    return [
        Reload(f"{stage.name}'s weights", stage.weights_bytes, stage.weights_bytes / bytes_s)
        for stage in result.stages
    ]
