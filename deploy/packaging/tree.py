"""Lay out the package's file tree for one architecture: `python tree.py ARCH WHEEL DIRECTORY`, ARCH as Debian names it.

The packages Omniwatch needs are unpacked from wheels for every Python that a supported system has; their compiled modules
carry the version in their names, so that one folder serves all of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from omniwatch.bundle import render
from omniwatch.settings import Settings

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""JetPack 6, Debian 12, JetPack 7, Debian 13."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
LOCK = Path(__file__).parents[2] / "tests" / "requirements.txt"
HOME = "opt/omniwatch"


def main(arch: str, wheel: Path, tree: Path) -> None:
    """Make the whole tree."""
    site = tree / HOME / "site"
    with tempfile.TemporaryDirectory() as directory:
        for python in PYTHONS:
            for package in wheels(arch, python, wheel, Path(directory, python)):
                unpack(package, site)
    unpack(wheel, site)
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


def wheels(arch: str, python: str, wheel: Path, directory: Path) -> list[Path]:
    """Fetch what Omniwatch needs on this architecture and Python, in the locked versions."""
    abi = "cp" + python.replace(".", "")
    platforms = [word for libc in GLIBC for word in ("--platform", f"{libc}_{MACHINES[arch]}")]
    locked = re.findall(r"^([\w.-]+==[^\s;\\]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    directory.mkdir()
    constraints = directory / "constraints.txt"
    constraints.write_text("\n".join(locked), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary=:all:",
        "--dest",
        str(directory),
    ]
    target = ["--implementation=cp", f"--python-version={python}", f"--abi={abi}", "--abi=abi3", "--abi=none"]
    subprocess.run([*command, *target, *platforms, f"--constraint={constraints}", str(wheel)], check=True)
    return [path for path in directory.glob("*.whl") if path.name != wheel.name]


def unpack(package: Path, site: Path) -> None:
    """Add a wheel's files. The same file for two Pythons has to be the same, but for what describes the wheel itself."""
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            target = site / name
            if name.endswith("/") or ".data/" in name:
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
