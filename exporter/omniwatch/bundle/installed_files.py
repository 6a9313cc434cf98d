"""Write an installation's files all or none, list them in a manifest, and remove them completely.

Paths are the device's own; `root` is where its file tree is, "/" on the device itself.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from omniwatch import __version__
from omniwatch.bundle.program_files import HOME, InstallError, Item
from omniwatch.system import atomic_write

CONFIG = PurePosixPath("/etc/omniwatch/omniwatch.yaml")
UNITS = PurePosixPath("/etc/systemd/system")
MANIFEST = HOME / "manifest.json"
MAX_LINKS = 40
"""Links on the way to a file, as many as the kernel follows."""


class Manifest(msgspec.Struct):
    """What an installation wrote: a SHA-256 for each file, "-> target" for each link; which of them are configs; and the
    directories it made.
    """

    version: str
    files: dict[str, str]
    configs: list[str] = []
    directories: list[str] = []


def at(root: Path, path: PurePosixPath) -> Path:
    """Where a device's path is, below `root`: a link on the way leads where it would on the device, and not out of `root`.

    Raises InstallError where links go in a circle.
    """
    done, waiting, links = root, [*reversed(path.parts)], 0
    while waiting:
        part = waiting.pop()
        if part == "/":
            done = root
        elif part == "..":
            done = done if done == root else done.parent
        elif waiting and (done / part).is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise InstallError(f"{root / str(path).lstrip('/')}: {os.strerror(errno.ELOOP)}")
            waiting += reversed((done / part).readlink().parts)
        else:
            done /= part
    return done


def _folder(root: Path, path: PurePosixPath) -> Path:
    """Where a device's directory is, the last link followed too."""
    return at(root, path / "any").parent


def is_packaged(root: Path) -> bool:
    """Whether the sidecar on this device belongs to the package manager."""
    return (root / "var/lib/dpkg/info/omniwatch.list").exists()


def manifest(root: Path, which: PurePosixPath = MANIFEST, *, force: bool = False) -> Manifest | None:
    """What was installed; None when nothing was, with `force` also where its list is damaged. Raises InstallError."""
    path = at(root, which)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if force:
            return None
        raise InstallError(
            f"{path}: {error}; `omniwatch install --force` with the options of before writes it anew"
        ) from error


def state_of(path: Path) -> str | None:
    """A file's SHA-256, a link's "-> target"; None when there is neither. Raises OSError, for a folder too."""
    if path.is_symlink():
        return f"-> {path.readlink()}"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def wanted_state(item: Item) -> str:
    """What `state_of` will say of an item once it is written."""
    return f"-> {item.link}" if item.link else hashlib.sha256(item.content).hexdigest()


def write(
    root: Path,
    known: Manifest | None,
    wanted: list[Item],
    changes: list[Item],
    gone: Iterable[PurePosixPath],
) -> None:
    """Stage every change beside its target, then rename all; remove what is gone. `known` is what was written before.

    Raises OSError that names the file; then, and when it is interrupted, nothing is half written.
    """
    gone = list(gone)
    missing = _missing_directories(root, [*(item.path for item in changes), MANIFEST])
    made: list[Path] = []
    try:
        for directory in missing:
            path = _folder(root, directory)
            made.append(path)
            path.mkdir()
            path.chmod(0o755)
        with atomic_write.replacing_all() as stage:
            for item in [*changes, _manifest_item(root, known, wanted, missing, gone)]:
                _write(item, stage(at(root, item.path)))
    except BaseException:
        for path in reversed(made):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
    for old in gone:
        at(root, old).unlink(missing_ok=True)
    remove_empty(root, {*missing, *map(PurePosixPath, known.directories if known else ())})


def _write(item: Item, temporary: Path) -> None:
    if item.link:
        temporary.symlink_to(item.link)
        return
    temporary.write_bytes(item.content)
    temporary.chmod(item.mode)
    if item.kind != "program" or item.path == MANIFEST:
        # A power cut after the renames must not leave these empty: nothing but --force would mend that.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())


def _missing_directories(root: Path, paths: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """The directories that have to be made for these files, outer ones first."""
    parents = {parent for path in paths for parent in path.parents}
    return sorted(parent for parent in parents if not _folder(root, parent).exists())


def _manifest_item(
    root: Path,
    known: Manifest | None,
    wanted: Iterable[Item],
    made: Iterable[PurePosixPath],
    gone: Iterable[PurePosixPath],
) -> Item:
    before = known or Manifest(__version__, {})
    left = before.files.keys() - set(map(str, gone))
    there = {p: before.files[p] for p in left if os.path.lexists(at(root, PurePosixPath(p)))}
    now = {str(item.path): item for item in wanted}
    kept = Manifest(
        __version__,
        there | {path: wanted_state(item) for path, item in now.items()},
        sorted({*before.configs, *(path for path, item in now.items() if item.kind == "config")}),
        sorted({*before.directories, *map(str, made)}),
    )
    return Item(MANIFEST, _written(kept))


def _written(kept: Manifest) -> bytes:
    return json.dumps(msgspec.to_builtins(kept), indent=1, sort_keys=True).encode() + b"\n"


def leave_word(root: Path, where: PurePosixPath, left: Manifest) -> None:
    """Write down what a removal has left. Raises OSError."""
    path = at(root, where)
    path.parent.mkdir(exist_ok=True)
    atomic_write.replace(path, _written(left), mode=0o644, durable=True)


def remove(root: Path, paths: Iterable[PurePosixPath], directories: Iterable[PurePosixPath]) -> None:
    """Remove files, links and whole trees, then those of the directories that this leaves empty. Raises OSError."""
    for path in paths:
        target = at(root, path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    remove_empty(root, directories)


def remove_empty(root: Path, directories: Iterable[PurePosixPath]) -> None:
    """Remove directories that are empty, inner ones first."""
    for directory in sorted(directories, reverse=True):
        path = at(root, directory)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
