"""Decide what a removal deletes from a device, and what it keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch import __version__
from omniwatch.bundle.installed_files import MANIFEST, Manifest, at, is_packaged, manifest, state_of
from omniwatch.bundle.program_files import HOME, InstallError
from omniwatch.bundle.wiring import BUNDLE
from omniwatch.tune import dropin

STATE = (
    PurePosixPath("/var/lib/omniwatch"),
    PurePosixPath("/var/lib/qwen3-omni"),
    PurePosixPath("/var/lib/private/qwen3-omni"),
    PurePosixPath("/var/lib/omniwatch-uplink"),
    PurePosixPath("/var/lib/private/omniwatch-uplink"),
    PurePosixPath("/var/lib/omniwatch-notify"),
)
"""What the units' StateDirectory= make: the sidecar's, behind links the model server's and the uplink's queue, and what the
bridge has not delivered."""
SPOOL = PurePosixPath("/run/omniwatch")
CONFIG_DIRECTORY = PurePosixPath("/etc/omniwatch")
LEFT = CONFIG_DIRECTORY / "left.json"
"""What a removal without a purge left behind, as a manifest."""


class Removal(NamedTuple):
    """What to stop, to remove (trees whole), and which directories to remove where that leaves them empty. `tuned` are the
    drop-ins to take back as `omniwatch tune --revert` does, `changed` the files that somebody else has written since: they
    are among `kept` or, with a purge, among `paths`. `left` is the word of what is kept, for a purge that comes later.
    """

    units: list[str]
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
    installed = manifest(root)
    known = installed or (manifest(root, LEFT) if purge else None)
    if known is None and packaged:
        known = Manifest(__version__, {})
    tuned = dropin.own_files(root)
    if known is None:
        raise InstallError(
            f"{at(root, HOME)}: omniwatch install has put nothing here" + dropin.ways_back(tuned)
        )
    files = [PurePosixPath(path) for path in known.files if path not in known.configs]
    units = [p.name for p in files if p.suffix == ".service" and "wants" not in str(p)]
    outside = [path for path in files if not path.is_relative_to(HOME)]
    # The sidecar of a package is the package manager's to remove, with all that is its own.
    changed = [path for path in outside if _is_changed(at(root, path), known.files[str(path)])]
    paths = [
        *(path for path in outside if purge or path not in changed),
        *([MANIFEST] if packaged else [HOME, SPOOL]),
    ]
    own = [PurePosixPath(path) for path in known.configs]
    state = STATE[1:] if packaged else STATE
    kept = [path for path in (*changed, *own, *state) if os.path.lexists(at(root, path))]
    left = None
    if installed and not purge and kept:
        left = Manifest(
            installed.version, {str(p): installed.files[str(p)] for p in (*changed, *own)}, installed.configs
        )
    if purge:
        # The user's own files beside ours in /etc/omniwatch (certificates, passwords) are configuration of it as well.
        paths += [*((*own, LEFT) if packaged else [CONFIG_DIRECTORY]), *state]
        kept = []
    directories = [PurePosixPath(path) for path in known.directories]
    there = [path for path in paths if os.path.lexists(at(root, path))]
    account = not packaged and (purge or not kept)
    return Removal(units, tuned, there, directories, kept, changed, account, left)


def still_read(plan: Removal, readers: Sequence[str]) -> tuple[Removal, list[str]]:
    """Return the removal without the configuration's folder where Prometheus or Alertmanager reads the bundle in it, and what to say
    of that, a line each.
    """
    if not readers or CONFIG_DIRECTORY not in plan.paths:
        return plan, []
    kept = plan._replace(
        paths=[path for path in plan.paths if path != CONFIG_DIRECTORY],
        kept=[*plan.kept, CONFIG_DIRECTORY],
        left=Manifest(__version__, {}),
    )
    return kept, [f"{one} reads {BUNDLE}: point it elsewhere, then purge again" for one in readers]


def _is_changed(path: Path, written: str) -> bool:
    """Whether something else is there than was written. A link is not: `systemctl enable` writes its own."""
    try:
        return not path.is_symlink() and state_of(path) not in (None, written)
    except OSError:
        return True
