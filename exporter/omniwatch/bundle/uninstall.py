"""Decide what a removal deletes from a device, and what it keeps."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch import __version__
from omniwatch.bundle import installed_files, render, systemctl, units, wiring
from omniwatch.bundle.installed_files import MANIFEST, Manifest, is_packaged, manifest, state_of
from omniwatch.bundle.program_files import HOME, InstallError
from omniwatch.settings import Server
from omniwatch.system import rooted
from omniwatch.tune import change, congestion, dropin

STATE = tuple(folder for unit in units.TABLE for folder in unit.state)
"""What the units keep in /var/lib."""
SPOOL = PurePosixPath("/run/omniwatch")
CONFIG_DIRECTORY = PurePosixPath("/etc/omniwatch")
LEFT = CONFIG_DIRECTORY / "left.json"
"""What a removal without a purge left behind, as a manifest."""


class Removal(NamedTuple):
    """What to stop, to remove (trees whole), and which directories to remove where that leaves them empty. `tuned` are the
    units whose drop-ins to take back as `omniwatch tune --revert` does, `congestion` the files of its BBR,
    `changed` those that somebody else has written since: they are among `kept` or, with a purge, among `paths`. `left` is the
    word of what is kept, for a purge that comes later. `of_user` are files that a purge takes and no
    installation brings back: secrets, certificates, changed settings.
    """

    stopped: list[str]
    tuned: list[str]
    congestion: list[PurePosixPath]
    paths: list[PurePosixPath]
    directories: list[PurePosixPath]
    kept: list[PurePosixPath]
    changed: list[PurePosixPath]
    account: bool
    left: Manifest | None
    of_user: list[PurePosixPath]


def removal(root: Path, *, purge: bool) -> Removal:
    """Work out what a removal takes. Raises InstallError when nothing was installed, and OSError.

    A package's sidecar needs no installation beside it: then there may be nothing to remove. Nor does a purge after a
    removal, which left configuration and state behind.
    """
    packaged = is_packaged(root)
    listed = manifest(root)
    installed = installed_files.settled(root, listed) if listed else None
    known = installed or (manifest(root, LEFT) if purge else None)
    if known is None and (packaged or installed_files.is_begun(root)):
        known = Manifest(__version__, {})
    tuned = dropin.own_units(root)
    if known is None:
        raise InstallError(
            f"{rooted.shown(root, HOME)}: omniwatch install has put nothing here"
            + dropin.ways_back(tuned, root)
        )
    files = [PurePosixPath(path) for path in known.files if path not in known.configs]
    stopped = [p.name for p in files if p.suffix == ".service" and "wants" not in str(p)]
    outside = [
        path
        for path in files
        if not path.is_relative_to(HOME) and not wiring.is_enabled_by_another(root, path, known.files)
    ]
    # The sidecar of a package is the package manager's to remove, with all that is its own.
    changed = [path for path in outside if _is_changed(root, path, known.files[str(path)])]
    paths = [
        *(path for path in outside if purge or path not in changed),
        *([MANIFEST] if packaged else [HOME, SPOOL]),
    ]
    own = [PurePosixPath(path) for path in known.configs]
    state = [path for path in STATE if not (packaged and path in units.SIDECAR.state)]
    kept = [path for path in (*changed, *own, *state) if rooted.is_there(root, path)]
    left = None
    if installed and not purge and kept:
        left = Manifest(
            installed.version,
            {str(p): installed.files.get(str(p), "") for p in (*changed, *own)},
            installed.configs,
        )
    if purge:
        # The user's own files beside ours in /etc/omniwatch (certificates, passwords) are configuration of it as well.
        paths += [*((*own, LEFT) if packaged else [CONFIG_DIRECTORY]), *state]
        kept = []
    directories = [PurePosixPath(path) for path in known.directories]
    there = [path for path in paths if rooted.is_there(root, path)]
    account = not packaged and (purge or not kept)
    of_user = (
        [*(path for path in changed if path in there), *_made_by_user(root, there, known)] if purge else []
    )
    bbr = [
        path
        for path in (congestion.SYSCTL, congestion.MODULES)
        if dropin.is_ours(root, path) or dropin.is_back(root, path)
    ]
    return Removal(stopped, tuned, bbr, there, directories, kept, changed, account, left, of_user)


def foreseen(root: Path, plan: Removal) -> tuple[Removal, list[str]]:
    """Return what a removal will have been, and what is to be said of who still reads the bundle; nothing is removed."""
    return _without_what_is_read(plan, wiring.readers(root, _dropins(plan)))


def carry_out(root: Path, plan: Removal) -> tuple[Removal, list[str]]:
    """Stop the units and remove; return what the removal was, and what went wrong, a line each. Raises OSError and TuneError."""
    faults = systemctl.leave(root, plan.stopped)
    if dropins := _dropins(plan):
        # Debian's servers go back to their own configuration first: what they read is not deleted under them.
        servers = {
            unit.fixed_name: units.is_started_by_us(dropins, unit) for unit in map(units.owner, dropins)
        }
        faults += systemctl.leave(root, [name for name, is_ours in servers.items() if is_ours])
        installed_files.remove(root, dropins, ())
        faults += systemctl.restart(root, [name for name, is_ours in servers.items() if not is_ours])
    plan, readers = _without_what_is_read(plan, wiring.readers(root))
    faults += readers
    for unit in plan.tuned:
        # The reload comes once, when all is gone.
        if root == Path("/"):
            change.revert(Server(unit=unit, container_id_file=""), root, lambda: None)
        else:
            dropin.revert(unit, lambda: None, root)
    if plan.congestion:
        congestion.revert(root, is_running=root == Path("/"))
    rendered = [wiring.BUNDLE / path for path in render.paths()]
    installed_files.sweep(root, manifest(root), (LEFT, *rendered))
    if plan.left:
        installed_files.leave_word(root, LEFT, plan.left)
    # The manifests go last: until then a removal that is killed can be run again.
    last = {CONFIG_DIRECTORY: LEFT, LEFT: LEFT, HOME: MANIFEST, MANIFEST: MANIFEST}
    installed_files.remove(root, [path for path in plan.paths if path not in last], plan.directories)
    faults += systemctl.forget(root, plan.stopped, account=plan.account)
    for path, manifested in last.items():
        if path in plan.paths:
            installed_files.remove_with_its_list(root, path, manifested)
    installed_files.remove_empty(root, plan.directories)
    return plan, faults


def _dropins(plan: Removal) -> list[PurePosixPath]:
    """Return what has Debian's servers read the bundle, and start."""
    return [path for path in plan.paths if units.owner(path).is_debians]


def _without_what_is_read(plan: Removal, readers: Sequence[str]) -> tuple[Removal, list[str]]:
    """Return the removal without the configuration's folder where a server reads the bundle in it, and a line on each."""
    if not readers or CONFIG_DIRECTORY not in plan.paths:
        return plan, []
    kept = plan._replace(
        paths=[path for path in plan.paths if path != CONFIG_DIRECTORY],
        kept=[*plan.kept, CONFIG_DIRECTORY],
        left=Manifest(__version__, {}),
        of_user=[path for path in plan.of_user if not path.is_relative_to(CONFIG_DIRECTORY)],
    )
    return kept, [f"{one} reads {wiring.BUNDLE}: point it elsewhere, then purge again" for one in readers]


def _made_by_user(root: Path, paths: Sequence[PurePosixPath], known: Manifest) -> list[PurePosixPath]:
    """Return the files of the configuration among `paths`, folders whole, that are not as an installation wrote them."""
    ours = {LEFT, *(wiring.BUNDLE / path for path in render.paths())}
    below = (one for path in paths if path.is_relative_to(CONFIG_DIRECTORY) for one in _files(root, path))
    return [one for one in below if one not in ours and _is_changed(root, one, known.files.get(str(one), ""))]


def _files(root: Path, path: PurePosixPath, depth: int = rooted.MAX_DEPTH) -> Iterator[PurePosixPath]:
    if rooted.link(root, path) is None and rooted.is_folder(root, path):
        if depth == 0:
            raise OSError(errno.ELOOP, "folders in folders without an end", str(rooted.shown(root, path)))
        for name in rooted.names(root, path):
            yield from _files(root, path / name, depth - 1)
    else:
        yield path


def _is_changed(root: Path, path: PurePosixPath, written: str) -> bool:
    """Whether something else is there than was written. A link is not: `systemctl enable` writes its own."""
    try:
        return rooted.link(root, path) is None and state_of(root, path) not in (None, written)
    except OSError:
        return True
