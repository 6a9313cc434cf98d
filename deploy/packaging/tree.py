"""Lay out the packages' file trees for one architecture: `python tree.py ARCH WHEEL DIRECTORY`, ARCH as Debian names it.

DIRECTORY gets a folder for each package: omniwatch, and omniwatch-desk with what a device does without. The packages that
Omniwatch requires are unpacked from wheels for every Python that a supported system has; their compiled modules carry the
version in their names, so that one folder serves all of them.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import manuals
from fetch import DESK_EXTRAS, wheels

from omniwatch.bundle import render
from omniwatch.bundle.program_files import is_for_desk
from omniwatch.settings import Settings

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""JetPack 6, Debian 12, JetPack 7, Debian 13."""
HOME = "opt/omniwatch"
SITE = f"{HOME}/site"


def main(arch: str, wheel: Path, directory: Path) -> None:
    """Make both trees."""
    device, desk = directory / "omniwatch", directory / "omniwatch-desk"
    with tempfile.TemporaryDirectory() as downloads:
        for python in PYTHONS:
            both = Path(downloads, f"{python}-desk")
            everything = wheels(arch, python, f"{wheel}[{DESK_EXTRAS}]", both)
            of_device = wheels(arch, python, str(wheel), Path(downloads, python), fetched=both)
            for name, package in everything.items():
                unpack(package, (device if name in of_device else desk) / SITE)
    unpack(wheel, device / SITE, lambda name: not is_for_desk(name))
    unpack(wheel, desk / SITE, is_for_desk)
    lay_out(device)
    for tree, of_desk in ((device, False), (desk, True)):
        put_manuals(tree, of_desk=of_desk)


def lay_out(tree: Path) -> None:
    """Add what is no package of Python: the environment, the commands, settings and units."""
    put(tree, f"{HOME}/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    link(tree, f"{HOME}/venv/bin/python", "/usr/bin/python3")
    for python in PYTHONS:
        link(tree, f"{HOME}/venv/lib/python{python}/site-packages", "../../../site")
    link(tree, f"{HOME}/tap/omniwatch", "../site/omniwatch")
    launcher = (
        f"#!/{HOME}/venv/bin/python -I\nfrom omniwatch.cli import main\n\nmain(prog_name='omniwatch')\n"
    )
    put(tree, f"{HOME}/bin/omniwatch", launcher, 0o755)
    link(tree, "usr/bin/omniwatch", f"/{HOME}/bin/omniwatch")
    files = {path.name: text for path, text in render.render(Settings()).items()}
    put(tree, "etc/omniwatch/omniwatch.yaml", files["omniwatch.yaml"])
    put(tree, "usr/lib/systemd/system/omniwatch.service", files["omniwatch.service"])
    put(tree, "usr/lib/sysusers.d/omniwatch.conf", files["sysusers.conf"])
    put(tree, "usr/lib/tmpfiles.d/omniwatch.conf", files["tmpfiles.conf"])


def put_manuals(tree: Path, *, of_desk: bool) -> None:
    """Add the manual pages of the tree's commands and, to the device's, the shells' completion."""
    for name, page in manuals.pages(of_desk=of_desk).items():
        put(tree, name, "")
        (tree / name).write_bytes(page)
    for name, text in ({} if of_desk else manuals.completions()).items():
        put(tree, name, text)


def unpack(package: Path, site: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Add a wheel's files. The same file for two Pythons has to be the same, but for what describes the wheel itself."""
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            target = site / name
            if name.endswith("/") or ".data/" in name or not is_wanted(name):
                continue
            content = archive.read(name)
            if target.exists() and target.read_bytes() != content and ".dist-info/" not in name:
                raise SystemExit(f"{package.name}: {name} is another file for another Python")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o644)


def put(tree: Path, name: str, text: str, mode: int = 0o644) -> None:
    """Write one file."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def link(tree: Path, name: str, target: str) -> None:
    """Make one link."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
