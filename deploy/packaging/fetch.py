"""Fetch what a wheel of Omniwatch needs, in the locked versions: `python fetch.py ARCH PYTHON WHEEL DIRECTORY`, ARCH as Debian names it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
OLDEST = "3.10"
GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
LOCK = Path(__file__).parents[2] / "tests" / "requirements.txt"
DESK_EXTRAS = "bench,client,desk"
"""Extras that the desk's package and image bring. The others are too large, or are for a device."""


def locked(arch: str) -> list[str]:
    """Return the locked versions; of a package that has several, that of the oldest Python: one folder of a package serves all."""
    there = {
        "python_version": OLDEST,
        "python_full_version": f"{OLDEST}.0",
        "platform_machine": MACHINES[arch],
        "sys_platform": "linux",
    }
    lines = re.findall(r"^[\w.-]+==[^\\\n]+", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        f"{one.name}{one.specifier}"
        for one in map(Requirement, lines)
        if one.marker is None or one.marker.evaluate(there)
    ]


def wheels(
    arch: str, python: str, wanted: str, directory: Path, fetched: Path | None = None
) -> dict[str, Path]:
    """Collect what a wheel needs on this architecture and Python, in the locked versions; return it by name.

    It is fetched from the package index, or taken from a folder of wheels that were.
    """
    abi = "cp" + python.replace(".", "")
    platforms = [word for libc in GLIBC for word in ("--platform", f"{libc}_{MACHINES[arch]}")]
    directory.mkdir(parents=True)
    constraints = directory / "constraints.txt"
    constraints.write_text("\n".join(locked(arch)), encoding="utf-8")
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
    source = [] if fetched is None else ["--no-index", f"--find-links={fetched}"]
    subprocess.run(
        [*command, *source, *target, *platforms, f"--constraint={constraints}", wanted], check=True
    )
    return {path.name: path for path in directory.glob("*.whl") if not path.name.startswith("omniwatch-")}


if __name__ == "__main__":
    wheels(sys.argv[1], sys.argv[2], f"{sys.argv[3]}[{DESK_EXTRAS}]", Path(sys.argv[4]))
