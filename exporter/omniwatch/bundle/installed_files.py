"""Write an installation's files, list them in a manifest, and remove them completely.

The manifest comes first, as what is intended, and goes last: an installation or a removal that was killed is ended by the next run.
Paths are the device's own; `root` is where its file tree is, "/" on the device itself.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import msgspec

from omniwatch import __version__, settings
from omniwatch.bundle.program_files import HOME, InstallError, Item
from omniwatch.settings import Settings, SettingsError
from omniwatch.system import atomic_write, places, rooted

CONFIG = PurePosixPath(places.CONFIG)
UNITS = PurePosixPath("/etc/systemd/system")
MANIFEST = HOME / "manifest.json"
MAX_BYTES = 8 << 20
"""Bytes of a manifest. Installed with everything it has some 200,000."""
_FOLDERS = (HOME, UNITS, CONFIG.parent)
NEEDRESTART = PurePosixPath("/etc/needrestart/conf.d")
_FILES = (
    PurePosixPath("/usr/local/bin/omniwatch"),
    PurePosixPath("/etc/sysusers.d/omniwatch.conf"),
    PurePosixPath("/etc/tmpfiles.d/omniwatch.conf"),
    NEEDRESTART / "omniwatch.conf",
)


class Manifest(msgspec.Struct):
    """What an installation wrote: a SHA-256 for each file, "-> target" for each link; which of them are configs; and the
    directories it made. `intended` is what an installation that has not ended is to write.
    """

    version: str
    files: dict[str, str]
    configs: list[str] = []
    directories: list[str] = []
    intended: dict[str, str] = {}


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Lock a file tree against a second installation or removal. Raises InstallError while another one holds it, and OSError."""
    # Any account may open "/", and could hold a lock on it for good.
    lock = Path("/run/omniwatch.install.lock") if root == Path("/") else root
    flags = os.O_RDONLY if lock == root else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    opened = os.open(lock, flags, 0o600)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InstallError(
                f"{root}: another `omniwatch install` or `uninstall` is at work here; run this again when it has ended"
            ) from error
        yield
    finally:
        os.close(opened)


def configuration(root: Path) -> Settings | None:
    """Return what the device's omniwatch.yaml says; None where there is none. Raises SettingsError."""
    try:
        content = rooted.read(root, CONFIG)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{error.filename}: {error.strerror}") from error
    return settings.parse(content, CONFIG.name)


def is_packaged(root: Path) -> bool:
    """Whether the sidecar on this device belongs to the package manager."""
    return rooted.is_there(root, PurePosixPath("/var/lib/dpkg/info/omniwatch.list"))


def manifest(root: Path, which: PurePosixPath = MANIFEST, *, force: bool = False) -> Manifest | None:
    """What was installed; None when nothing was, with `force` also where its list is damaged. Raises InstallError, also for a list
    of what no installation writes.
    """
    try:
        content = rooted.read(root, which, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EFBIG or not force:
            raise InstallError(f"{error.filename}: {error.strerror}") from error
        return None
    try:
        known = msgspec.json.decode(content, type=Manifest)
        for wrong in _foreign(root, known):
            raise ValueError(wrong)
    except (ValueError, RecursionError) as error:
        if force:
            return None
        raise InstallError(
            f"{rooted.shown(root, which)}: {error}; `omniwatch install --force` with the options of before writes it anew"
        ) from error
    return known


def _foreign(root: Path, known: Manifest) -> Iterator[str]:
    """Yield what of a manifest no installation has written: paths elsewhere, and those that lead elsewhere."""
    looked_at: set[PurePosixPath] = set()
    folders = set(known.directories)
    for text in (*known.files, *known.intended, *known.configs, *folders):
        path = PurePosixPath(text)
        if text in folders:
            is_ours = any(path in place.parents for place in (*_FOLDERS, *_FILES)) or path in _FOLDERS
            between = {path, *path.parents}
        else:
            is_ours = path in _FILES
            between = set(path.parents)
        inside = next((folder for folder in _FOLDERS if folder in path.parents), None)
        if not _is_plain(text) or not (is_ours or inside):
            yield f"{text[:200]!r} is none of an installation's"
            return
        between = {folder for folder in between if inside in folder.parents}
        if any(rooted.link(root, folder) for folder in between - looked_at):
            yield f"{text[:200]!r} leads through a link"
            return
        looked_at |= between


def _is_plain(text: str) -> bool:
    path = PurePosixPath(text)
    return text.isprintable() and str(path) == text and path.is_absolute() and ".." not in path.parts


def settled(root: Path, known: Manifest) -> Manifest:
    """Return what is there of an installation that was killed: of what it intended that which was written."""
    written = {
        path: state
        for path, state in known.intended.items()
        if (path in known.configs and rooted.is_there(root, PurePosixPath(path)))
        or _is_in_state(root, PurePosixPath(path), state)
    }
    return msgspec.structs.replace(known, files=known.files | written, intended={})


def _is_in_state(root: Path, path: PurePosixPath, state: str) -> bool:
    try:
        return state_of(root, path) == state
    except OSError:
        return False


def state_of(root: Path, path: PurePosixPath) -> str | None:
    """A file's SHA-256, a link's "-> target"; None when there is neither. Raises OSError, for a folder too."""
    target = rooted.link(root, path)
    if target is not None:
        # `systemctl enable` writes the link that starts one of our units with the unit's whole path.
        unit = PurePosixPath(target)
        return f"-> ../{unit.name}" if unit.parent == UNITS == path.parent.parent else f"-> {target}"
    try:
        return hashlib.sha256(rooted.read(root, path)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def wanted_state(item: Item) -> str:
    """What `state_of` will say of an item once it is written."""
    return f"-> {item.link}" if item.link else hashlib.sha256(item.content).hexdigest()


@contextmanager
def announced(
    root: Path,
    known: Manifest | None,
    wanted: list[Item],
    changes: list[Item],
    gone: list[PurePosixPath],
) -> Iterator[None]:
    """List what is intended in the manifest, and when the context has ended what is there. `known` is what was written before.

    When the context raises and nothing that was intended is there, the manifest of before is put back. Raises OSError.
    """
    missing = _missing_directories(root, [*(item.path for item in changes), MANIFEST])
    try:
        before = rooted.read(root, MANIFEST)
    except FileNotFoundError:
        before = None
    intent = _intent(known, wanted, missing)
    try:
        for directory in missing:
            if directory in MANIFEST.parents:
                rooted.make_folder(root, directory)
        rooted.replace(root, MANIFEST, _written(intent), mode=0o644)
        for directory in missing:
            if directory not in MANIFEST.parents:
                rooted.make_folder(root, directory)
        yield
    except BaseException:
        if not any(_is_in_state(root, item.path, wanted_state(item)) for item in changes):
            with suppress(OSError):
                if before is None:
                    rooted.remove(root, MANIFEST)
                else:
                    rooted.replace(root, MANIFEST, before, mode=0o644)
                remove_empty(root, missing)
        raise
    remove_empty(root, map(PurePosixPath, intent.directories))
    rooted.replace(root, MANIFEST, _written(_outcome(root, intent, gone)), mode=0o644)


def write(root: Path, changes: list[Item], gone: Iterable[PurePosixPath]) -> None:
    """Stage every change beside its target, then rename all; remove what is gone.

    A unit comes after the files that it names and goes before them. Raises OSError that names the file; then, and when
    it is interrupted, nothing is half written.
    """
    with rooted.replacing_all(root) as stage:
        for item in sorted(changes, key=lambda item: _turn(item.path)):
            # A power cut after the renames must not leave a unit or a config empty: nothing but --force would mend that.
            durable = item.kind != "program"
            stage(item.path, item.content, link=item.link, mode=item.mode, durable=durable)
    for old in sorted(gone, key=_turn, reverse=True):
        rooted.remove(root, old)


def _turn(path: PurePosixPath) -> int:
    """Return a file's place in the order of writing: first what units name, then units, then the links that start them."""
    return path.is_relative_to(UNITS) + (path.parent.suffix == ".wants")


def sweep(root: Path, known: Manifest | None, more: Iterable[PurePosixPath] = ()) -> None:
    """Remove what one that was killed has left staged beside its files, or beside `more`. Raises OSError."""
    names: dict[PurePosixPath, set[str]] = {}
    listed = (*known.files, *known.intended) if known else ()
    for path in (MANIFEST, *map(PurePosixPath, listed), *more):
        names.setdefault(path.parent, set()).add(path.name)
    for folder, of_folder in names.items():
        rooted.remove_staged(root, folder, of_folder)


def is_begun(root: Path) -> bool:
    """Whether our folder is there and has nothing in it, but for a manifest that one was killed over."""
    return rooted.is_folder(root, HOME) and all(
        atomic_write.staged_for(name) == MANIFEST.name for name in rooted.names(root, HOME)
    )


def _missing_directories(root: Path, paths: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """The directories that have to be made for these files, outer ones first."""
    parents = {parent for path in paths for parent in path.parents}
    return sorted(parent for parent in parents if rooted.stat_of(root, parent) is None)


def _intent(known: Manifest | None, wanted: Iterable[Item], made: Iterable[PurePosixPath]) -> Manifest:
    before = known or Manifest(__version__, {})
    now = {str(item.path): item for item in wanted}
    return Manifest(
        __version__,
        before.files,
        sorted({*before.configs, *(path for path, item in now.items() if item.kind == "config")}),
        sorted({*before.directories, *map(str, made)}),
        {path: wanted_state(item) for path, item in now.items()},
    )


def _outcome(root: Path, intent: Manifest, gone: Iterable[PurePosixPath]) -> Manifest:
    left = intent.files.keys() - set(map(str, gone))
    there = {p: intent.files[p] for p in left if rooted.is_there(root, PurePosixPath(p))}
    return msgspec.structs.replace(intent, files=there | intent.intended, intended={})


def _written(kept: Manifest) -> bytes:
    return json.dumps(msgspec.to_builtins(kept), indent=1, sort_keys=True).encode() + b"\n"


def leave_word(root: Path, where: PurePosixPath, left: Manifest) -> None:
    """Write down what a removal has left. Raises OSError."""
    if not rooted.is_folder(root, where.parent):
        rooted.make_folder(root, where.parent)
    rooted.replace(root, where, _written(left), mode=0o644)


def remove(root: Path, paths: Iterable[PurePosixPath], directories: Iterable[PurePosixPath]) -> None:
    """Remove files, links and whole trees, units before what they name, then those of the directories that this leaves empty.
    Raises OSError.
    """
    for path in sorted(paths, key=_turn, reverse=True):
        rooted.remove(root, path)
    remove_empty(root, directories)


def remove_with_its_list(root: Path, folder: PurePosixPath, manifest: PurePosixPath) -> None:
    """Remove a whole tree, the manifest in it last. Raises OSError."""
    if rooted.link(root, folder) is None:
        for name in rooted.names(root, folder):
            if name != manifest.name:
                rooted.remove(root, folder / name)
        rooted.remove(root, folder / manifest.name)
    rooted.remove(root, folder)


def remove_empty(root: Path, directories: Iterable[PurePosixPath]) -> None:
    """Remove directories that are empty, inner ones first."""
    for directory in sorted(directories, reverse=True):
        rooted.remove_empty(root, directory)
