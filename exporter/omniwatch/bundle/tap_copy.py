"""A directory for a model server's PYTHONPATH: this package and no other, so that the server keeps its own libraries."""

from __future__ import annotations

import filecmp
import shutil
import sys
from pathlib import Path

import omniwatch
from omniwatch.bundle.program_files import DESK_ONLY, NAME
from omniwatch.system.errors import UserError

PACKAGE = Path(omniwatch.__file__).parent
_LEFT_OUT = {"__pycache__", "_data", *(part for part in DESK_ONLY if "/" not in part)}


class NoTapFolderError(UserError):
    """Nothing here has the package alone."""


def here(prefix: Path = Path(sys.prefix)) -> Path:
    """Return the directory that `install`, the Debian package or the image has made. Raises NoTapFolderError."""
    folder = prefix.parent / "tap"
    if not (folder / NAME).exists() or not (folder / NAME).samefile(PACKAGE):
        raise NoTapFolderError(
            f"{prefix}: other packages lie beside the tap here; `tap-path --copy DIR` makes a place of its own"
        )
    return folder


def put(directory: Path) -> Path:
    """Put the package into a directory, whole or not at all; one that is the same stays. Return the directory. Raises OSError."""
    target, made = directory / NAME, directory / f".{NAME}.new"
    if _is_same(PACKAGE, target):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(made, ignore_errors=True)  # of one that was killed
    try:
        shutil.copytree(PACKAGE, made / "new", ignore=shutil.ignore_patterns(*_LEFT_OUT))
        if target.is_symlink() or target.exists():
            target.rename(made / "old")
        (made / "new").rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return directory


def _is_same(ours: Path, theirs: Path) -> bool:
    """Whether two folders hold the same files, but for those that are left out."""
    if not theirs.is_dir() or theirs.is_symlink():
        return False
    found = filecmp.dircmp(ours, theirs, ignore=sorted(_LEFT_OUT), hide=[])
    if found.left_only or found.right_only or found.common_funny:
        return False
    different = filecmp.cmpfiles(ours, theirs, found.common_files, shallow=False)
    return (
        not different[1]
        and not different[2]
        and all(_is_same(ours / d, theirs / d) for d in found.common_dirs)
    )
