"""Copy runs of bytes into a new file, a piece at a time, so that memory does not grow with the model.

A piece is hashed by another thread while it is written, and what was written is forced onto the disk by a third.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.layout import OutFile, Run
from omniwatch.desk.slice.work import Work
from omniwatch.system import user_file

PIECE_BYTES = 8 * 2**20
SYNC_BYTES = 2**30
"""Bytes after which a file is forced onto the disk, so that a run that is killed loses no more."""
Told = Callable[[int], None]
"""Is told how many more bytes are there."""


def write(work: Work, file: OutFile, told: Told, *, sync_bytes: int = SYNC_BYTES) -> str:
    """Write a file of weights and return its SHA-256, from where an earlier run was. Raises SliceError, OSError."""
    path = work.files / file.name
    done = work.state.digests.get(file.name)
    if done is not None and path.exists() and path.stat().st_size == file.size:
        told(file.size)
        return done
    begin = _begin(work, file, path)
    hashed = hashlib.sha256()
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:
        opened = os.open(path, flags, 0o666)
        stack.callback(os.close, opened)
        os.ftruncate(opened, begin)
        _hash_again(opened, begin, hashed.update, told)
        os.lseek(opened, begin, os.SEEK_SET)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        forcing = stack.enter_context(ThreadPoolExecutor(1))
        at, asked, forced = begin, begin, None
        hashing: list[Future[None]] = []
        for piece in _pieces(file, begin, stack, hashing):
            hashing.append(pool.submit(hashed.update, piece))
            _write_all(opened, piece)
            at += len(piece)
            told(len(piece))
            if at - asked >= sync_bytes:
                if forced is not None:
                    forced.result()
                forced, asked = forcing.submit(_force, work, opened, file.name, at), at
        for future in (*hashing, *([forced] if forced else [])):
            future.result()
        os.fsync(opened)
    work.state.digests[file.name] = hashed.hexdigest()
    work.state.name, work.state.size = "", 0
    work.save()
    return hashed.hexdigest()


def _force(work: Work, opened: int, name: str, size: int) -> None:
    """Force the first `size` bytes of a file onto the disk, and note that they are there for certain."""
    os.fdatasync(opened)
    work.state.name, work.state.size = name, size
    work.save()


def sha256(path: Path, told: Told) -> str:
    """Return a file's digest, a piece at a time. Raises OSError."""
    hashed = hashlib.sha256()
    with os.fdopen(user_file.open_regular(path), "rb", buffering=0) as opened:
        while piece := opened.read(PIECE_BYTES):
            hashed.update(piece)
            told(len(piece))
    return hashed.hexdigest()


def _begin(work: Work, file: OutFile, path: Path) -> int:
    """Bytes of the file that are there for certain."""
    if work.state.name != file.name or not path.exists():
        return 0
    return work.state.size if path.stat().st_size >= work.state.size else 0


def _hash_again(opened: int, size: int, update: Callable[[bytes], None], told: Told) -> None:
    at = 0
    while at < size:
        piece = os.pread(opened, min(PIECE_BYTES, size - at), at)
        if not piece:
            raise OSError(f"{size - at} bytes are gone")
        update(piece)
        told(len(piece))
        at += len(piece)


def _write_all(opened: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(opened, piece) :]


def _pieces(file: OutFile, skip: int, stack: ExitStack, hashing: list[Future[None]]) -> Iterator[memoryview]:
    """Yield the file's bytes from `skip` on in two buffers by turns; a buffer is filled anew once it has been hashed."""
    if skip < len(file.header):
        yield memoryview(file.header)[skip:]
    left = _skipped(file.runs(), max(0, skip - len(file.header)))
    buffers = [memoryview(bytearray(min(PIECE_BYTES, max(1, file.size)))) for _ in range(2)]
    sources: dict[Path, int] = {}
    run = next(left, None)
    while run is not None:
        if len(hashing) > 1:
            hashing.pop(0).result()
        buffers.reverse()
        buffer, filled = buffers[0], 0
        while run is not None and filled < len(buffer):
            if run.file not in sources:
                sources[run.file] = user_file.open_regular(run.file)
                stack.callback(os.close, sources[run.file])
            size = min(run.size, len(buffer) - filled)
            got = os.preadv(sources[run.file], [buffer[filled : filled + size]], run.begin)
            if not got:
                raise SliceError(f"{run.file}: ends before byte {run.begin + 1}: it became shorter")
            filled += got
            run = Run(run.file, run.begin + got, run.size - got) if got < run.size else next(left, None)
        yield buffer[:filled]


def _skipped(runs: Iterator[Run], skip: int) -> Iterator[Run]:
    for run in runs:
        if skip >= run.size:
            skip -= run.size
            continue
        yield Run(run.file, run.begin + skip, run.size - skip)
        skip = 0
