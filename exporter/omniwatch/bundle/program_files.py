"""Collect the program's files for a device: an environment of its own, copied from the running program.

Nothing is downloaded. This package, the packages it needs and their compiled parts are copied from where this process
imports them. The environment uses the same interpreter, or the system's of the same version.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import omniwatch
from omniwatch.bundle import data
from omniwatch.settings import Settings
from omniwatch.system import parts
from omniwatch.system.errors import UserError

HOME = PurePosixPath("/opt/omniwatch")
NAME = "omniwatch"

DESK_ONLY = (
    *("client", "desk"),
    *(
        f"_data/deploy/{name}"
        for name in ("ansible", "clients", "compose", "container", "link", "packaging", "quadlet", "setup.sh")
    ),
)
"""What no device needs of this package: folders and files below it."""


class Item(NamedTuple):
    """One file of an installation: where it goes, and its content, or what it links to."""

    path: PurePosixPath
    content: bytes = b""
    link: str = ""
    mode: int = 0o644
    kind: str = "program"
    """"program", "unit" or "config": a program's files are replaced, a config is never."""


class InstallError(UserError):
    """What stands in the way. More than one stands on a line each."""


class PayloadError(InstallError):
    """The running program cannot be copied."""


def program(python: PurePosixPath, config: Settings) -> list[Item]:
    """Everything below /opt/omniwatch, and the command, with the parts that the settings ask for. Raises PayloadError."""
    major, minor = sys.version_info[:2]
    site = HOME / f"venv/lib/python{major}.{minor}/site-packages"
    settings = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {major}.{minor}\n"
    command = f"#!{HOME}/venv/bin/python -I\nfrom omniwatch.cli import main\n\nmain(prog_name='omniwatch')\n"
    return [
        Item(HOME / "venv/pyvenv.cfg", settings.encode()),
        Item(HOME / "venv/bin/python", link=str(python)),
        Item(HOME / "venv/bin/python3", link="python"),
        Item(HOME / "bin/omniwatch", command.encode(), mode=0o755),
        # For a model server's PYTHONPATH: this package and no other, so that the server keeps its own libraries.
        Item(HOME / "tap" / NAME, link=f"../venv/lib/python{major}.{minor}/site-packages/{NAME}"),
        Item(PurePosixPath("/usr/local/bin/omniwatch"), link=str(HOME / "bin/omniwatch")),
        *(Item(site / name, path.read_bytes()) for name, path in sorted(_modules(config).items())),
    ]


def _modules(config: Settings) -> dict[str, Path]:
    """Every file that a device needs of this package and of what it requires, by its path below site-packages."""
    if lacks := list(parts.lacking(config)):
        raise PayloadError("\n".join(lacks))
    found: dict[str, Path] = {}
    for distribution in _needed(NAME, set()):
        if distribution.files is None:
            raise PayloadError(
                f"{distribution.name}: its list of files (RECORD) is missing; install it anew with pip"
            )
        files = [file for file in distribution.files if not _is_left_out(str(file))]
        found |= {str(file): Path(str(file.locate())) for file in files if Path(str(file.locate())).is_file()}
    if f"{NAME}/cli/__init__.py" not in found:
        # What a build once copied beside an editable installation may be older than the clone.
        found = {name: path for name, path in found.items() if not name.startswith(f"{NAME}/")}
        found |= _from_a_clone()
    absent = [part for part in parts.TABLE if not part.is_wanted(config)]
    return {
        name: path
        for name, path in found.items()
        if not is_for_desk(name) and not any(part.has(name.removeprefix(f"{NAME}/")) for part in absent)
    }


def is_for_desk(name: str) -> bool:
    """Whether a file, by its path below site-packages, belongs to the desk alone."""
    return any(name == f"{NAME}/{place}" or name.startswith(f"{NAME}/{place}/") for place in DESK_ONLY)


def _is_left_out(name: str) -> bool:
    return (
        name.startswith(("..", "/", "__editable__"))
        or "__pycache__" in name
        or name.endswith((".pyc", ".pth", "direct_url.json", "/INSTALLER", "/REQUESTED"))
    )


def _needed(name: str, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """The distribution and those it requires; what only other systems or extras need is passed over."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return
    seen.add(key)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise PayloadError(f"{name} is not installed as a package here: its files cannot be found") from error
    yield distribution
    for requirement in distribution.requires or []:
        what, _, marker = requirement.partition(";")
        if "extra ==" in marker:
            continue
        match = re.match(r"[A-Za-z0-9._-]+", what.strip())
        try:
            yield from _needed(match[0] if match else what, seen)
        except PayloadError:
            # A requirement with a condition ("on Windows", "before Python 3.11") may rightly be missing.
            if not marker:
                raise


def _from_a_clone() -> dict[str, Path]:
    """The package of an editable installation, with the data folders where a wheel has them."""
    package = Path(omniwatch.__file__).parent
    found = {
        f"{NAME}/{path.relative_to(package).as_posix()}": path
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    root = data.root()
    for folder in data.FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.is_file():
                found[f"{NAME}/_data/{path.relative_to(root).as_posix()}"] = path
    return found
