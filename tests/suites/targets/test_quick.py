"""What a developer meets on each distribution: `make quick` of this clone, and packages that are not asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE
from suites.system.machine import copy_of, inside, run

CLONED = "/srv/omniwatch"


@pytest.fixture
def tree(bare: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A fresh copy of the distribution's tree, with this clone in it."""
    with copy_of(bare, f"{bare.name}-quick") as fresh:
        run("git", "clone", "--quiet", str(CLONE), f"{fresh}{CLONED}")
        yield fresh


def test_make_quick_passes(tree: Path) -> None:
    said = inside(tree, "make", "-C", CLONED, "quick", network=True)
    assert re.search(r"^\d+ passed.* in ", said, re.MULTILINE), said[-2000:]


def test_no_snap_is_installed_for_a_browser(tree: Path) -> None:
    release = (tree / "etc/os-release").read_text(encoding="utf-8")
    if "ID=ubuntu\n" not in release:
        pytest.skip("only Ubuntu's Chromium is a snap")
    inside(tree, "sh", "-c", f"cd {CLONED} && deploy/setup.sh chromium curl", network=True)
    installed = inside(tree, "dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n")
    assert "curl ii" in installed
    assert "snapd" not in installed
