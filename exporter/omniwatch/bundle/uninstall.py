"""Decide what a removal deletes from a device, and what it keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch import __version__
from omniwatch.bundle import installed_files, render, systemctl, units, wiring
from omniwatch.bundle.installed_files import MANIFEST, Manifest, at, is_packaged, manifest, state_of
from omniwatch.bundle.program_files import HOME, InstallError
from omniwatch.settings import Server
from omniwatch.tune import change, dropin

STATE = tuple(folder for unit in units.TABLE for folder in unit.state)
"""What the units keep in /var/lib."""
SPOOL = PurePosixPath("/run/omniwatch")
CONFIG_DIRECTORY = PurePosixPath("/etc/omniwatch")
LEFT = CONFIG_DIRECTORY / "left.json"
"""What a removal without a purge left behind, as a manifest."""


class Removal(NamedTuple):
    """What to stop, to remove (trees whole), and which directories to remove where that leaves them empty. `tuned` are the
    drop-ins to take back as `omniwatch tune --revert` does, `changed` the files that somebody else has written since: they
    are among `kept` or, with a purge, among `paths`. `left` is the word of what is kept, for a purge that comes later.
    """

    stopped: list[str]
    tuned: list[Path]
    paths: list[PurePosixPath]
    directories: list[PurePosixPath]
    kept: list[PurePosixPath]
    changed: list[PurePosixPath]
    account: bool
    left: Manifest | None


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
    tuned = dropin.own_files(root)
    if known is None:
        raise InstallError(
            f"{at(root, HOME)}: omniwatch install has put nothing here" + dropin.ways_back(tuned)
        )
    files = [PurePosixPath(path) for path in known.files if path not in known.configs]
    stopped = [p.name for p in files if p.suffix == ".service" and "wants" not in str(p)]
    outside = [path for path in files if not path.is_relative_to(HOME)]
    # The sidecar of a package is the package manager's to remove, with all that is its own.
    changed = [path for path in outside if _is_changed(at(root, path), known.files[str(path)])]
    paths = [
        *(path for path in outside if purge or path not in changed),
        *([MANIFEST] if packaged else [HOME, SPOOL]),
    ]
    own = [PurePosixPath(path) for path in known.configs]
    state = [path for path in STATE if not (packaged and path in units.SIDECAR.state)]
    kept = [path for path in (*changed, *own, *state) if os.path.lexists(at(root, path))]
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
    there = [path for path in paths if os.path.lexists(at(root, path))]
    account = not packaged and (purge or not kept)
    return Removal(stopped, tuned, there, directories, kept, changed, account, left)


def foreseen(root: Path, plan: Removal) -> tuple[Removal, list[str]]:
    """Return what a removal will have been, and what is to be said of who still reads the bundle; nothing is removed."""
    return _without_what_is_read(plan, wiring.readers(root, _dropins(plan)))


def carry_out(root: Path, plan: Removal) -> tuple[Removal, list[str]]:
    """Stop the units and remove; return what the removal was, and what went wrong, a line each. Raises OSError and DropinError."""
    faults = systemctl.leave(root, plan.stopped)
    if dropins := _dropins(plan):
        # Debian's servers go back to their own configuration first: what they read is not deleted under them.
        installed_files.remove(root, dropins, ())
        faults += systemctl.restart(root, [units.owner(path).fixed_name for path in dropins])
    plan, readers = _without_what_is_read(plan, wiring.readers(root))
    faults += readers
    for target in plan.tuned:
        # The reload comes once, when all is gone.
        change.revert(Server(unit=dropin.unit_of(target), container_id_file=""), root, lambda: None)
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
    """Return what has Debian's servers read the bundle."""
    return [path for path in plan.paths if units.owner(path).is_debians]


def _without_what_is_read(plan: Removal, readers: Sequence[str]) -> tuple[Removal, list[str]]:
    """Return the removal without the configuration's folder where a server reads the bundle in it, and a line on each."""
    if not readers or CONFIG_DIRECTORY not in plan.paths:
        return plan, []
    kept = plan._replace(
        paths=[path for path in plan.paths if path != CONFIG_DIRECTORY],
        kept=[*plan.kept, CONFIG_DIRECTORY],
        left=Manifest(__version__, {}),
    )
    return kept, [f"{one} reads {wiring.BUNDLE}: point it elsewhere, then purge again" for one in readers]


def _is_changed(path: Path, written: str) -> bool:
    """Whether something else is there than was written. A link is not: `systemctl enable` writes its own."""
    try:
        return not path.is_symlink() and state_of(path) not in (None, written)
    except OSError:
        return True
