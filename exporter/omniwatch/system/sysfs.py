"""Read small files from /proc, /sys and the cgroup trees, which may be absent, unreadable or gone at the next read."""

from __future__ import annotations

import os
from pathlib import Path


def read_text(path: str | Path) -> str | None:
    """Return a small file's text, stripped; None where it is absent or the kernel refuses (EAGAIN, EIO, EACCES)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 65536).decode("utf-8", "replace").strip().rstrip("\0")
    except OSError:
        return None
    finally:
        os.close(fd)


def read_int(path: str | Path) -> int | None:
    """Return the whole number a file holds; None where there is none."""
    return to_int(read_text(path))


def to_int(text: str | None) -> int | None:
    """Return a decimal number; None for None or other text."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def names(directory: str | Path, *, only_directories: bool = False) -> list[str]:
    """Return a directory's entries in order; none where it is absent."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not only_directories or entry.is_dir())
    except OSError:
        return []


def pairs(text: str | None) -> dict[str, int]:
    """Parse lines of "key number", as in cpu.stat."""
    found = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        number = to_int(value)
        if number is not None:
            found[key] = number
    return found
