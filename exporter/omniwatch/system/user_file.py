"""Read a file that a user names: a regular one, never waited for, to a bound."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 64 << 20
"""Bytes of a file that states no bound of its own."""
_NULL = os.makedev(1, 3)


def read(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return a file's content. Raises OSError that names it: also for a FIFO, a socket, a device or a folder, and for more than
    `most` bytes, even where the file grows without end.
    """
    opened = open_regular(path)
    try:
        return content(opened, most)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(opened)


def open_regular(path: Path) -> int:
    """Open a file to read from it. Raises OSError that names it, also for what is no regular file."""
    try:
        # To open a device may already do something.
        regular(path.stat())
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            regular(os.fstat(opened))
        except OSError:
            os.close(opened)
            raise
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return opened


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """Return a file's text, as `read` does. Raises OSError, also for what is not UTF-8."""
    try:
        return read(path, most).decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"not UTF-8: {error.reason}", str(path)) from error


def content(opened: int, most: int = MAX_BYTES, *, cut: bool = False) -> bytes:
    """Return what an open file holds; with `cut` the first bytes of a longer one. Raises OSError that names no file."""
    regular(os.fstat(opened))
    parts = []
    left = most + 1
    while left and (part := os.read(opened, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    if left == 0 and not cut:
        raise OSError(errno.EFBIG, f"longer than {most} bytes")
    return b"".join(parts)[:most]


def regular(found: os.stat_result) -> None:
    """Raise OSError, which names no file, for what is no regular file. /dev/null is an empty one."""
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
        return
    if stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
