"""Build a release of the last commit into dist/, or DIST: `python release.py`.

It makes the wheel, the source, both .debs and both images for amd64 and arm64, an SBOM for each .deb and image, and SHA256SUMS.
IMAGES names the architectures of images, if not both. The variables of deploy/container/build.sh hold here too. The files have
the commit's time: the same commit gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import wheel

CLONE = Path(__file__).parents[2]
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
SUMS = "SHA256SUMS"
BINFMT = Path("/proc/sys/fs/binfmt_misc")


def main() -> None:
    """Build all of it beside dist/, and move it there at the end."""
    os.chdir(CLONE)
    if why := refusal():
        sys.stderr.write(f"release: {why}\n")
        sys.exit(2)
    dist = Path(os.environ.get("DIST", "dist")).absolute()
    made = CLONE / "build/release"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = output("git", "log", "-1", "--format=%ct")
    os.environ["BIN"] = str(Path(sys.executable).parent)
    os.environ["DIST"] = str(made)
    os.umask(0o022)
    tools = Path(output("deploy/packaging/tools.sh", PYTHON=sys.executable)).absolute()
    os.environ["WHEEL"] = str(wheel.build(tools, made))
    run(tools / "hatchling", "build", "--target", "sdist", "--directory", made)
    run("deploy/packaging/build.sh", *ARCHITECTURES)
    for arch in ARCHITECTURES:
        if why := lacking(arch, os.environ.get("IMAGES", "").split()):
            sys.stderr.write(f"release: no images for {arch}: {why}\n")
        else:
            run("deploy/container/build.sh", arch)
    for file in sorted([*made.glob("*.deb"), *made.glob("*.image.tar.gz")]):
        name, number, _ = file.name.split("_")
        run(tools / "python", "deploy/packaging/sbom.py", name, number, f"{file}.cdx.json", file)
    publish(made, dist)


def refusal() -> str | None:
    """Why there can be no release now; None where there can."""
    try:
        changed = subprocess.check_output(
            ["git", "status", "--porcelain"], stderr=subprocess.DEVNULL, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "a release is made of a commit, and this is no git clone"
    if changed:
        names = [line[3:] for line in changed.splitlines()]
        more = f" and {len(names) - 1} more" if names[1:] else ""
        return f"commit or remove first what is in no commit: {names[0]}{more}"
    if not re.search(
        rf"^## {re.escape(version())}\b", (CLONE / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    ):
        return f"CHANGELOG.md: a section '## {version()}' is missing"
    return None


def version() -> str:
    """The number in the package's __init__.py, its only home."""
    text = (CLONE / "exporter/omniwatch/__init__.py").read_text("utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def lacking(arch: str, wanted: list[str], binfmt: Path = BINFMT) -> str | None:
    """Why this machine makes no images for an architecture; None where it does. `wanted` names those asked for, or none: all."""
    machine = ARCHITECTURES[arch]
    if wanted and arch not in wanted:
        return f"IMAGES names only {' '.join(wanted)}"
    if os.uname().machine != machine and not (binfmt / f"qemu-{machine}").exists():
        return f"this machine runs no programs of {arch}; build on one that does, or install qemu-user-static"
    return None


def publish(made: Path, dist: Path) -> None:
    """Move what was made to where releases are, their sums last."""
    dist.mkdir(parents=True, exist_ok=True)
    lines = []
    for file in sorted(made.iterdir()):
        lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
        shutil.move(file, dist / file.name)
    (dist / SUMS).write_text("".join(lines), "utf-8")
    sys.stdout.write("".join(lines))


def run(*command: str | Path) -> None:
    """Run a step; what it prints goes to standard error."""
    subprocess.run(command, stdout=sys.stderr, check=True)


def output(*command: str, **variables: str) -> str:
    """Return what a command prints."""
    return subprocess.run(
        command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: {' '.join(map(str, error.cmd))}: exit code {error.returncode}")
