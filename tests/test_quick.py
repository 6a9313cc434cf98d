"""`make quick` runs on a machine that has neither servers nor promtool: what its tests would find on their PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.programs import BEYOND_PYTHON, path_without


def test_a_test_without_the_marker_finds_no_program_that_a_bare_machine_lacks() -> None:
    """This one has none."""
    assert [name for name in sorted(BEYOND_PYTHON) if shutil.which(name)] == []
    assert shutil.which("python3")
    assert shutil.which("make")


@pytest.mark.programs
def test_a_test_with_the_marker_finds_them() -> None:
    assert shutil.which("promtool")
    assert shutil.which("prometheus")


def test_quick_runs_those_without_it() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "quick"], cwd=CLONE, capture_output=True, text=True, check=True
    ).stdout
    assert 'pytest -m "not programs and not slow" ' in planned
    assert "prometheus" not in planned


def test_other_programs_of_the_same_directory_are_still_found(tmp_path: Path) -> None:
    for name in ("both/a", "both/b", "other/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = path_without(["a", "x"], f"{tmp_path}/both:{tmp_path}/other:{tmp_path}/both", tmp_path / "links")
    assert [shutil.which(name, path=path) is not None for name in "abc"] == [False, True, True]
    assert str(tmp_path / "other") in path.split(os.pathsep)
