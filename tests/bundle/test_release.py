"""When `make release` refuses, in one line, and when it makes no images. What it makes is in tests/suites/release."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.paths import CLONE
from omniwatch import __version__

sys.path.insert(0, str(CLONE / "deploy/packaging"))
import fetch

PACKAGING = "deploy/packaging"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a clone as is looked at before anything is built, as a commit."""
    for name in (f"{PACKAGING}/release.py", f"{PACKAGING}/wheel.py", f"{PACKAGING}/fetch.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CLONE / name, tmp_path / name)
    package = tmp_path / "exporter/omniwatch/__init__.py"
    package.parent.mkdir(parents=True)
    shutil.copy(CLONE / "exporter/omniwatch/__init__.py", package)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n/build/\n/dist/\n")
    git(tmp_path, "init")
    commit(tmp_path)
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    name = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", *name, *arguments], cwd=directory, check=True, capture_output=True)


def commit(directory: Path) -> None:
    git(directory, "add", "--all")
    git(directory, "commit", "--message=x")


def refused(directory: Path) -> str:
    """What is said, once nothing was built."""
    done = subprocess.run(
        [sys.executable, f"{PACKAGING}/release.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert not (directory / "build").exists()
    assert not (directory / "dist").exists()
    return done.stderr


def test_what_is_in_no_commit_is_named(clone: Path) -> None:
    (clone / "new.txt").touch()
    assert refused(clone) == "release: commit or remove first what is in no commit: new.txt\n"
    (clone / "CHANGELOG.md").write_text("changed")
    assert refused(clone) == "release: commit or remove first what is in no commit: CHANGELOG.md and 1 more\n"


def test_a_version_that_the_changelog_lacks_is_named(clone: Path) -> None:
    missing = f"release: CHANGELOG.md: a section '## {__version__}' is missing\n"
    assert refused(clone) == missing
    (clone / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__}0\n")
    commit(clone)
    assert refused(clone) == missing


def test_a_folder_that_is_no_clone_is_refused(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    assert refused(clone) == "release: a release is made of a commit, and this is no git clone\n"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program's own module."""
    monkeypatch.syspath_prepend(CLONE / PACKAGING)
    import release

    return release


def test_an_architecture_is_built_for_where_its_programs_run(release: Any, tmp_path: Path) -> None:
    foreign = next(
        arch for arch, machine in release.ARCHITECTURES.items() if machine != release.os.uname().machine
    )
    own = next(arch for arch in release.ARCHITECTURES if arch != foreign)
    assert release.lacking(own, [], tmp_path) is None
    assert release.lacking(foreign, [], tmp_path).startswith(f"this machine runs no programs of {foreign};")
    (tmp_path / f"qemu-{release.ARCHITECTURES[foreign]}").touch()
    assert release.lacking(foreign, [], tmp_path) is None
    assert release.lacking(foreign, [own], tmp_path) == f"IMAGES names only {own}"


@pytest.mark.parametrize("arch", fetch.MACHINES)
def test_a_package_of_several_locked_versions_is_that_of_the_oldest_python(arch: str) -> None:
    locked = dict(one.split("==") for one in fetch.locked(arch))
    assert len(locked) == len(fetch.locked(arch)), "a package has one version"
    assert locked["markdown-it-py"].startswith("3."), "4 is for newer Pythons"
