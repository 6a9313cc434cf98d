"""List the files that were written before and after a given one: a path's rotated siblings, oldest first."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

_SUFFIX = re.compile(r"[.\-_](?:\d[\w.:+\-]*|old|prev)")
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|lzma|zip|Z)(?:\.|\Z)")
_COUNTER = re.compile(r"[.\-_](\d{1,5})\Z")
_TRIES = 6

UNREADABLE = frozenset((errno.EACCES, errno.EPERM, errno.EIO))
"""Errors of a file, not of a moment: waiting for one that was rotated away would be waiting for ever."""


class File(NamedTuple):
    """A regular file as it was seen: size in bytes, time of its last write in nanoseconds."""

    path: Path
    dev: int
    ino: int
    size: int
    mtime_ns: int

    @property
    def key(self) -> tuple[int, int]:
        """What a file keeps when it is renamed."""
        return self.dev, self.ino


class Survey(NamedTuple):
    """A path's file, if there is one, and its rotated siblings, oldest first, the path's own not among them."""

    rotated: tuple[File, ...]
    current: File | None

    @property
    def newest_first(self) -> list[File]:
        """All of them, the path's own first."""
        return [file for file in (self.current, *reversed(self.rotated)) if file]

    def is_in_doubt(self, held: tuple[int, int], mtime_ns: int) -> bool:
        """Whether the file with the key of one last written then may be a later one, its inode used anew: there are older
        ones that came after that.
        """
        for file in (*self.rotated, *([self.current] if self.current else [])):
            if file.key == held:
                return False
            if file.mtime_ns >= mtime_ns:
                return True
        return False


class MovedError(OSError):
    """A file went elsewhere between being seen and being opened: look again."""


def file_at(path: Path) -> File:
    """See the file a path leads to, symbolic links followed. Raises OSError, also where it is no regular file."""
    seen = path.stat()
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return File(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def free_bytes(directory: Path) -> int | None:
    """Room left on a directory's file system for whoever is not root; None where the directory is not there."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def open_file(file: File) -> int:
    """Open what was seen and nothing else, for reading, never waiting. Raises MovedError, OSError."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MovedError(*error.args) from error
    opened = os.fstat(fd)
    if (opened.st_dev, opened.st_ino) != file.key:
        os.close(fd)
        raise MovedError(errno.ENOENT, "replaced while it was opened")
    return fd


def bases(name: str) -> list[str]:
    """List what a file name would be a rotated sibling of: "e.jsonl-20260101.1" of "e.jsonl-20260101", "e.jsonl"."""
    cuts = (at for at, sign in enumerate(name) if at and sign in ".-_")
    return [name[:at] for at in cuts if _SUFFIX.fullmatch(name, at)]


def is_compressed(name: str) -> bool:
    """Tell by the name whether a rotated file was compressed (or is being so)."""
    return _COMPRESSED.search(name) is not None


def survey(path: Path) -> Survey:
    """See a path and its siblings, as they stand twice in a row: amid a rotation, a file may be seen twice or never.

    Raises MovedError if they do not stand still.
    """
    before = None
    for _ in range(_TRIES):
        now = _survey(path)
        names = [(file.path, file.key) for file in now.newest_first]
        if names == before:
            return now
        before = names
    raise MovedError(errno.EAGAIN, "being rotated")


def _survey(path: Path) -> Survey:
    found: dict[tuple[int, int], File] = {}
    for sibling in _siblings(path):
        try:
            file = file_at(sibling)
        except OSError:
            continue
        found[file.key] = file
    # The path comes last: what was copied from it and is among the siblings is no longer in it, or still will be.
    try:
        current = file_at(path)
    except OSError:
        return Survey(tuple(sorted(found.values(), key=_age)), None)
    found.pop(current.key, None)
    return Survey(tuple(sorted(found.values(), key=_age)), current)


def _siblings(path: Path) -> list[Path]:
    start = path.name
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(start)]
    except OSError:
        return []
    return [
        path.with_name(name)
        for name in names
        if _SUFFIX.fullmatch(name, len(start)) and not is_compressed(name)
    ]


def _age(file: File) -> tuple[int, int, str]:
    """Order by last write; within one tick of the file system's clock, `.2` is older than `.1`."""
    counter = _COUNTER.search(file.path.name)
    return file.mtime_ns, -int(counter[1]) if counter else 0, file.path.name


def later(seen: Survey, held: tuple[int, int] | None, mtime_ns: int) -> list[File]:
    """List the files that follow the held one, oldest first, the path's own last.

    A held file that is not among those seen is placed by the time of its last write, before files of the same time. A file
    read twice does less harm than one left out: its lines carry numbers, so repeated ones are skipped.
    """
    current, order = seen.current, list(seen.rotated)
    if current and current.key == held:
        return []
    if current and current.size:
        order = [file for file in order if file.mtime_ns <= current.mtime_ns]
    places = [file.key for file in order]
    if held in places:
        order = order[places.index(held) + 1 :]
    else:
        order = [file for file in order if file.mtime_ns >= mtime_ns]
    return [*order, current] if current else order
