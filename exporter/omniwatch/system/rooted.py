"""Reach what is below a root as the device that starts from it would: an absolute link begins at the root, `..` ends there.

Each function takes the root and a path of the device's own, and raises OSError that names the place below the root. With the root "/"
these are the plain calls. Each call looks for its folder anew, and then works by the folder's descriptor: whoever swaps a folder for a
link meanwhile leads no call out of the root.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat
import struct
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Protocol

from omniwatch.system import atomic_write, user_file

MAX_LINKS = 40
"""Links on the way to a file, as many as the kernel follows."""
MAX_DEPTH = 200
"""Folders in one another that are removed."""
_READS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_LISTS = os.O_RDONLY | os.O_DIRECTORY
_OPENAT2 = 437
"""Number of the system call, the same for every architecture."""
_IN_ROOT = 0x10
"""RESOLVE_IN_ROOT of <linux/openat2.h>."""


def shown(root: Path, path: PurePosixPath) -> Path:
    """Return how a device's path is named in messages."""
    return root / str(path).lstrip("/")


def read(root: Path, path: PurePosixPath, most: int = user_file.MAX_BYTES, *, cut: bool = False) -> bytes:
    """Return a regular file's content; see `user_file.content`."""
    with _named(root, path):
        found = stat_of(root, path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        # What is no regular file is refused before it is opened: to open a device may already do something.
        flags = _READS if stat.S_ISREG(found.st_mode) else os.O_PATH
        with _opened(root, path, flags) as opened:
            return user_file.content(opened, most, cut=cut)


def names(root: Path, path: PurePosixPath) -> list[str]:
    """Return what is in a folder, in order; nothing where there is no such folder."""
    try:
        with _named(root, path), _opened(root, path, _LISTS) as opened:
            return sorted(_listed(opened))
    except (FileNotFoundError, NotADirectoryError):
        return []


def stat_of(root: Path, path: PurePosixPath, *, follow: bool = True) -> os.stat_result | None:
    """Return a file's state, with `follow` that of where the last link leads, too; None where there is nothing."""
    try:
        with (
            _named(root, path),
            _opened(root, path, os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW) as opened,
        ):
            return os.fstat(opened)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_there(root: Path, path: PurePosixPath) -> bool:
    """Whether a path leads to anything, a link that leads nowhere included."""
    return stat_of(root, path, follow=False) is not None


def is_folder(root: Path, path: PurePosixPath) -> bool:
    """Whether a path leads to a folder."""
    found = stat_of(root, path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def link(root: Path, path: PurePosixPath) -> str | None:
    """Return where a link leads; None for what is none."""
    try:
        with _named(root, path), _opened(root, path, os.O_PATH | os.O_NOFOLLOW) as opened:
            return os.readlink("", dir_fd=opened) if stat.S_ISLNK(os.fstat(opened).st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def make_folder(root: Path, path: PurePosixPath, mode: int = 0o755) -> None:
    """Make a folder where there is none; its mode is this whatever the umask."""
    with _within(root, path) as (folder, name):
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=folder)
        opened = os.open(name, _LISTS | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fchmod(opened, mode)
        finally:
            os.close(opened)


def make_folders(root: Path, path: PurePosixPath) -> None:
    """Make a folder and those it is in, where there are none, with the mode that the umask leaves."""
    for each in (*reversed(path.parents), path):
        if not is_folder(root, each):
            with _within(root, each) as (folder, name):
                try:
                    os.mkdir(name, dir_fd=folder)
                except FileExistsError:
                    if not is_folder(root, each):
                        raise


def replace(
    root: Path, path: PurePosixPath, content: bytes, *, mode: int, like: os.stat_result | None = None
) -> None:
    """Replace a file, or the link in its place, the owner as that of the file before (`like`); all of it is on the disk on return."""
    with (
        _within(root, path) as (folder, name),
        atomic_write.replacing(Path(name), mode=mode, durable=True, folder=folder) as file,
    ):
        if like:
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        file.write(content)


def rename(root: Path, path: PurePosixPath, name: str) -> None:
    """Rename a file in its folder."""
    with _within(root, path) as (folder, before):
        os.replace(before, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(root: Path, path: PurePosixPath) -> None:
    """Remove a file, a link or a whole tree; none there is no error."""
    with _within(root, path, missing_ok=True) as (folder, name):
        if name:
            _remove(folder, name, MAX_DEPTH)


def remove_empty(root: Path, path: PurePosixPath) -> None:
    """Remove a folder that has nothing in it."""
    with _within(root, path, missing_ok=True) as (folder, name):
        if name:
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                    raise


def remove_staged(root: Path, path: PurePosixPath, of: Container[str]) -> None:
    """Remove from a folder what was to take the place of one of these names and never did."""
    for name in names(root, path):
        if atomic_write.staged_for(name) in of:
            remove(root, path / name)


@contextmanager
def lock(root: Path, path: PurePosixPath) -> Iterator[bool]:
    """Lock a folder; yield whether nobody else holds it."""
    with _named(root, path):
        opened = _open(root, path, _LISTS)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(opened)


class Stage(Protocol):
    """Writes a file, or a link, that takes its place later. Without a mode it has that of the file before, and its group."""

    def __call__(
        self,
        path: PurePosixPath,
        content: bytes,
        *,
        link: str = "",
        mode: int | None = None,
        group: int | None = None,
        durable: bool = False,
    ) -> None:
        """Write it."""


@contextmanager
def replacing_all(root: Path) -> Iterator[Stage]:
    """Yield what writes a file beside its place; at the end all take their places, one by one. When the context does not end
    well, none has. The folders stay open: none of these files is looked for anew where another one leads.
    """
    folders: dict[PurePosixPath, int] = {}
    staged: list[PurePosixPath] = []

    def stage(
        path: PurePosixPath,
        content: bytes,
        *,
        link: str = "",
        mode: int | None = None,
        group: int | None = None,
        durable: bool = False,
    ) -> None:
        before = stat_of(root, path) if mode is None else None
        if before:
            mode, group = stat.S_IMODE(before.st_mode), before.st_gid
        with _named(root, path):
            if path.parent not in folders:
                folders[path.parent] = opened.enter_context(_opened(root, path.parent, _LISTS))
            staged.append(path)
            name = atomic_write.beside(path.name)
            folder = folders[path.parent]
            atomic_write.put(name, content, link=link, mode=mode, group=group, durable=durable, folder=folder)

    with ExitStack() as opened:
        try:
            yield stage
            while staged:
                name, folder = staged[0].name, folders[staged[0].parent]
                with _named(root, staged[0]):
                    os.replace(atomic_write.beside(name), name, src_dir_fd=folder, dst_dir_fd=folder)
                staged.pop(0)
        finally:
            for path in staged:
                with suppress(OSError):
                    os.unlink(atomic_write.beside(path.name), dir_fd=folders[path.parent])


def _remove(folder: int, name: str, depth: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except IsADirectoryError:
        if depth == 0:
            raise OSError(errno.ELOOP, "folders in folders without an end") from None
    inner = os.open(name, _LISTS | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        for entry in _listed(inner):
            _remove(inner, entry, depth - 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def _listed(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


@contextmanager
def _named(root: Path, path: PurePosixPath) -> Iterator[None]:
    """Have an OSError name the place below the root: of a call by descriptor it names a part, or nothing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(shown(root, path))) from error


@contextmanager
def _within(root: Path, path: PurePosixPath, *, missing_ok: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the folder of a path, open, and the name in it; the name "" where there is no such folder and `missing_ok`."""
    if not path.name or path.name == "..":
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(shown(root, path)))
    with _named(root, path):
        try:
            folder = _open(root, path.parent, _LISTS)
        except (FileNotFoundError, NotADirectoryError):
            if not missing_ok:
                raise
            yield -1, ""
            return
        try:
            yield folder, path.name
        finally:
            os.close(folder)


@contextmanager
def _opened(root: Path, path: PurePosixPath, flags: int) -> Iterator[int]:
    opened = _open(root, path, flags)
    try:
        yield opened
    finally:
        os.close(opened)


def _open(root: Path, path: PurePosixPath, flags: int) -> int:
    """Open a path; its last link is followed, too, unless the flags have O_NOFOLLOW."""
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    flags |= os.O_CLOEXEC
    if root == Path("/"):
        return os.open(path, flags)
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        by_kernel = _openat2()
        if by_kernel is not None:
            with suppress(BlockingIOError):  # somebody renames folders just now
                return by_kernel(top, path, flags)
        return _walk(top, path, flags)
    finally:
        os.close(top)


@functools.cache
def _openat2() -> Callable[[int, PurePosixPath, int], int] | None:
    """Return the kernel's own way; None where it has none (before Linux 5.6, or forbidden by a container)."""
    try:
        import ctypes
    except ImportError:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall

    def by_kernel(top: int, path: PurePosixPath, flags: int) -> int:
        how = struct.pack("QQQ", flags, 0, _IN_ROOT)
        number, at = ctypes.c_long(_OPENAT2), ctypes.c_long(top)
        opened = call(number, at, os.fsencode(path), how, ctypes.c_size_t(len(how)))
        if opened < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(opened)

    try:
        os.close(by_kernel(-100, PurePosixPath("/"), os.O_PATH))
    except OSError:
        return None
    return by_kernel


def _walk(top: int, path: PurePosixPath, flags: int) -> int:
    """Open a path component by component: no call of it follows a link."""
    way: list[int] = []
    waiting, links = _parts(str(path)), 0
    try:
        while waiting:
            part, here = waiting.pop(), way[-1] if way else top
            if part == "/":
                while way:
                    os.close(way.pop())
            elif part == "..":
                if way:
                    os.close(way.pop())
            elif part != ".":
                is_last = not waiting
                opened, target = _step(here, part, flags if is_last else os.O_PATH | os.O_DIRECTORY)
                if target is not None:
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    waiting += _parts(target)
                elif is_last:
                    return opened
                else:
                    way.append(opened)
        return os.open(".", flags & ~os.O_NOFOLLOW, dir_fd=way[-1] if way else top)
    finally:
        for opened in way:
            os.close(opened)


def _step(here: int, name: str, flags: int) -> tuple[int, str | None]:
    """Open a name in a folder, or say where the link of that name leads."""
    follow = not flags & os.O_NOFOLLOW
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    except OSError as error:
        if not follow or error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        try:
            return -1, os.readlink(name, dir_fd=here)
        except OSError:
            raise error from None
    if follow and flags & os.O_PATH and stat.S_ISLNK(os.fstat(opened).st_mode):
        try:
            return -1, os.readlink("", dir_fd=opened)
        finally:
            os.close(opened)
    return opened, None


def _parts(text: str) -> list[str]:
    """Return a path's components, the first last; "/" is the root. What follows a slash asks for a folder, nothing included."""
    rest = [part or "." for part in text.lstrip("/").split("/")]
    return [*reversed(rest), *(["/"] if text.startswith("/") else [])]
