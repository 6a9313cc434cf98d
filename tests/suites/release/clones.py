"""Clones of this one in folders of their own, as a commit that can be released, and what `make release` makes of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from helpers.paths import CLONE
from omniwatch import __version__
from suites.container.engine import BASE, Engine

LEFT_OUT = (".git", ".venv", "build", "dist", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")
COMMIT_T = 1_790_000_000
"""Time of the commit, in seconds since the epoch."""
DISTRIBUTION = "exporter/omniwatch/__init__.py"


class Released(NamedTuple):
    """What a release made in a clone, and what was said."""

    clone: Path
    said: str

    @property
    def dist(self) -> Path:
        return self.clone / "dist"

    def file(self, pattern: str) -> Path:
        """The one file of that name."""
        (found,) = self.dist.glob(pattern)
        return found


def clone(directory: Path, version: str = __version__) -> Path:
    """Commit this clone's files in another folder, with the changelog's section that a release needs."""
    shutil.copytree(CLONE, directory, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    changelog = directory / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## Unreleased", f"## {version}", 1))
    package = directory / DISTRIBUTION
    package.write_text(
        re.sub(r'^__version__ = ".+"$', f'__version__ = "{version}"', package.read_text(), flags=re.M)
    )
    commit(directory)
    return with_tools(directory)


def again(first: Path, directory: Path) -> Path:
    """Clone a commit into another folder."""
    subprocess.run(["git", "clone", "--quiet", first, directory], check=True)
    return with_tools(directory)


def with_tools(directory: Path) -> Path:
    """Let a clone build with this one's tools: they take half of the time to install."""
    (directory / "build").mkdir()
    (directory / "build/packaging").symlink_to(tools())
    return directory


def commit(directory: Path) -> None:
    """Commit all that is there, always by the same name and at the same time."""
    names = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "x"), ("EMAIL", "x@localhost"), ("DATE", f"@{COMMIT_T} +0000"))
    }
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=x"]):
        subprocess.run(["git", *command], cwd=directory, env=os.environ | names, check=True)


def tools() -> Path:
    """The folder of the programs that build packages."""
    done = subprocess.run(
        ["deploy/packaging/tools.sh"],
        cwd=CLONE,
        env=os.environ | {"PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return (CLONE / done.stdout.strip()).parent


def build(directory: Path, command: str, engine: Engine | None = None) -> str:
    """Run one of the clone's build commands; return all that it said. Images stand on the engine's base."""
    images = (
        {}
        if engine is None
        else engine.environment | {"BASE": BASE, "ISOLATION": "chroot", "IMAGES": "amd64"}
    )
    ours = {"BIN": str(Path(sys.executable).parent), "PYTHONPATH": str(directory / "exporter")}
    done = subprocess.run(
        command.split(),
        cwd=directory,
        env=os.environ | images | ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def release(directory: Path, engine: Engine) -> Released:
    """Release the clone's commit."""
    said = build(directory, f"{sys.executable} deploy/packaging/release.py", engine)
    return Released(directory, said)
