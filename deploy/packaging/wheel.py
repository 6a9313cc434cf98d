"""Build the wheel with its SBOM in it: `python wheel.py TOOLS DIRECTORY` prints its path. TOOLS is what tools.sh prints.

SOURCE_DATE_EPOCH is the time of its files, in seconds since the epoch. The SBOM lists what pip installs beside the wheel, in
the locked versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch import wheels

ARCH, PYTHON = "amd64", "3.11"
"""Where the list is made. It is the same on every other: no package that a device needs depends on them."""


def build(tools: Path, directory: Path) -> Path:
    """Build it; raise CalledProcessError where a tool fails."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        bare = hatch(tools, work / "bare", {})
        wheels(ARCH, PYTHON, str(bare), work / "needed")
        # Named as in PEP 770's examples, by the package.
        sbom = work / "omniwatch.cdx.json"
        about = [bare.name.split("-")[1], str(sbom), *map(str, (work / "needed").glob("*.whl"))]
        subprocess.run(
            [tools / "python", Path(__file__).with_name("sbom.py"), "omniwatch", *about], check=True
        )
        return hatch(tools, directory, {"OMNIWATCH_SBOM": str(sbom)})


def hatch(tools: Path, directory: Path, variables: dict[str, str]) -> Path:
    """Have hatchling build a wheel."""
    subprocess.run(
        [tools / "hatchling", "build", "--target", "wheel", "--directory", directory],
        stdout=subprocess.DEVNULL,
        env=os.environ | variables,
        check=True,
    )
    return next(directory.glob("*.whl"))


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
