"""Choose the interpreter of an installation: the unit can reach it, and the compiled modules fit its version."""

from __future__ import annotations

import stat
import sys
from pathlib import Path, PurePosixPath

from omniwatch.bundle.program_files import PayloadError
from omniwatch.system import rooted

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The running one. Compiled parts are made for a version, whoever built the interpreter."""
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What ProtectHome= and PrivateTmp= of the units hide."""
_HEAD_BYTES = 20


def find(root: Path) -> PurePosixPath:
    """The interpreter that runs this program, outside of any virtual environment; where the unit could not run that one,
    the system's of the same version. Raises PayloadError with what is wrong with the first.
    """
    running = PurePosixPath(sys.base_prefix, "bin", f"python{VERSION}")
    faults = []
    for path in (running, PurePosixPath("/usr/bin", f"python{VERSION}")):
        said = fault(root, path)
        if said is None:
            return path
        faults.append(
            f"{rooted.shown(root, path)}: {said}; run the installation with one that the system has in /usr/bin"
        )
    raise PayloadError(faults[0])


def fault(root: Path, path: PurePosixPath) -> str | None:
    """Say why the account omniwatch could not run this interpreter of the tree in its unit; None where it could."""
    try:
        real, folders = _followed(root, path)
        found = rooted.stat_of(root, real)
    except OSError:
        found = None
    if found is None:
        return "no such interpreter"
    for folder in folders:
        if str(folder) in HIDDEN:
            return f"the unit of the sidecar sees nothing below {folder}"
        entered = rooted.stat_of(root, folder)
        if entered is None or not entered.st_mode & stat.S_IXOTH:
            return f"only some users may enter {folder}, the account omniwatch not"
    if not found.st_mode & stat.S_IXOTH:
        return "only some users may run it, the account omniwatch not"
    its = _made_for(rooted.read(root, real, _HEAD_BYTES, cut=True))
    ours = _made_for(rooted.read(Path("/"), PurePosixPath(sys.executable), _HEAD_BYTES, cut=True))
    if its is not None and ours is not None and its != ours:
        return "it is of another architecture than the program's compiled parts, which come from here"
    return None


def _followed(root: Path, path: PurePosixPath) -> tuple[PurePosixPath, list[PurePosixPath]]:
    """Resolve symlinks inside `root`; return the path and the folders entered on the way.

    In a cycle of links, return the path reached after 40 of them.
    """
    here, folders, links = PurePosixPath("/"), [], 0
    left = list(path.parts[1:])
    while left:
        step = here / left.pop(0)
        linked = rooted.link(root, step)
        if linked and links < rooted.MAX_LINKS:
            links += 1
            target = PurePosixPath(linked)
            here = PurePosixPath("/") if target.is_absolute() else here
            left = [*target.parts[target.is_absolute() :], *left]
        elif step.name == "..":
            here = here.parent
        else:
            here = step
            folders.append(step)
    return here, [folder for folder in folders if folder != here]


def _made_for(head: bytes) -> bytes | None:
    """Word size, byte order and machine of a program's header; None for a script."""
    return head[4:6] + head[18:20] if head.startswith(b"\x7fELF") else None
