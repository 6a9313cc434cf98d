"""Replace files atomically: readers see the old content or the new one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(target: Path, *, mode: int | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `target` when the context ends well, and is gone when it does not.

    `mode` is the file's whatever the umask; nobody else can read it before. `durable` returns when all of it is on the disk:
    a power cut then leaves the old file or the new one, and not an empty one. Raises OSError that names `target`.
    """
    beside = _beside(target)
    try:
        opened = _made(beside, 0o666 if mode is None else 0o600)
        try:
            with os.fdopen(opened, "wb") as file:
                if mode is not None:
                    os.fchmod(opened, mode)
                yield file
                if durable:
                    file.flush()
                    os.fsync(opened)
            beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.filename in (None, str(beside)):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    if durable:
        _force_name(target.parent)


def replace(target: Path, content: bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Replace `target` by `content`; see `replacing`. Raises OSError."""
    with replacing(target, mode=mode, durable=durable) as file:
        file.write(content)


@contextmanager
def replacing_all() -> Iterator[Callable[[Path], Path]]:
    """Yield a function that says where to write a target's new content; at the end all take their places, one by one.

    When the context does not end well, none has. An OSError of a write that names no file is given the last target's name.
    """
    staged: list[tuple[Path, Path]] = []

    def stage(target: Path) -> Path:
        beside = _beside(target)
        beside.unlink(missing_ok=True)
        staged.append((beside, target))
        return beside

    try:
        yield stage
        for beside, target in staged:
            beside.replace(target)
    except OSError as error:
        if error.filename is None and staged:
            error.filename = str(staged[-1][1])
        raise
    finally:
        for beside, _ in staged:
            beside.unlink(missing_ok=True)


def staged_for(name: str) -> str:
    """Return the name of the file that a file of this name was to take the place of; "" when it was not made here."""
    found = re.fullmatch(r"\.(.+)\.\d+", name)
    return found[1] if found else ""


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}")


def _made(path: Path, mode: int) -> int:
    """Make a file that was not there: what is written goes into no file or link that somebody else has put in its place."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        # Left by one with the same number that was killed: in a container it is the same at every start.
        path.unlink()
        return os.open(path, flags, mode)


def _force_name(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
