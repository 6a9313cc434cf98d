"""Replace files atomically: readers see the old content or the new one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(
    target: Path, *, mode: int | None = None, durable: bool = False, folder: int | None = None
) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `target` when the context ends well, and is gone when it does not.

    `mode` is the file's whatever the umask; nobody else can read it before. `durable` returns when all of it is on the disk:
    a power cut then leaves the old file or the new one, and not an empty one. With `folder`, an open one, `target` is a name in
    it. Raises OSError that names `target`.
    """
    staged = target.with_name(beside(target.name))
    try:
        opened = _made(staged, mode, folder)
        try:
            with os.fdopen(opened, "wb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(opened)
            os.replace(staged, target, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(staged, dir_fd=folder)
            raise
    except OSError as error:
        if error.filename in (None, str(staged)):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    if durable:
        _force_names(target.parent, folder)


def replace(
    target: Path,
    content: bytes,
    *,
    mode: int | None = None,
    durable: bool = False,
    folder: int | None = None,
) -> None:
    """Replace `target` by `content`; see `replacing`. Raises OSError."""
    with replacing(target, mode=mode, durable=durable, folder=folder) as file:
        file.write(content)


def put(
    name: str, content: bytes, *, link: str, mode: int | None, group: int | None, durable: bool, folder: int
) -> None:
    """Write a file, or a link, in an open folder, in the place of what was left there. Raises OSError."""
    if link:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        os.symlink(link, name, dir_fd=folder)
        return
    with os.fdopen(_made(Path(name), mode, folder), "wb") as file:
        if group is not None and os.fstat(file.fileno()).st_gid != group:
            os.fchown(file.fileno(), -1, group)
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def beside(name: str) -> str:
    """Return the name of the file that is to take the place of a file of this name."""
    return f".{name}.{os.getpid()}"


def staged_for(name: str) -> str:
    """Return the name of the file that a file of this name was to take the place of; "" when it was not made here."""
    found = re.fullmatch(r"\.(.+)\.\d+", name)
    return found[1] if found else ""


def _made(path: Path, mode: int | None, folder: int | None) -> int:
    """Make a file that was not there: what is written goes into no file or link that somebody else has put in its place."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    first = 0o666 if mode is None else 0o600
    try:
        opened = os.open(path, flags, first, dir_fd=folder)
    except FileExistsError:
        # Left by one with the same number that was killed: in a container it is the same at every start.
        os.unlink(path, dir_fd=folder)
        opened = os.open(path, flags, first, dir_fd=folder)
    if mode is not None:
        try:
            os.fchmod(opened, mode)
        except OSError:
            os.close(opened)
            raise
    return opened


def _force_names(directory: Path, folder: int | None) -> None:
    opened = os.open(directory, os.O_RDONLY) if folder is None else folder
    try:
        os.fsync(opened)
    finally:
        if folder is None:
            os.close(opened)
