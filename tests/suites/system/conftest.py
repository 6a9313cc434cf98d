"""Machines for the system tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE
from suites.system.machine import Machine, base, booted, copy_of, inside, run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This clone as a wheel."""
    out = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(out),
        str(CLONE),
    )
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def machine(wheel: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A booted machine on which pip has installed this clone in /srv/venv."""
    with copy_of(base(), request.module.__name__) as tree:
        target = tree / "srv" / wheel.name
        target.write_bytes(wheel.read_bytes())
        inside(tree, "/srv/venv/bin/pip", "install", "-q", "--no-deps", "--no-index", f"/srv/{wheel.name}")
        with booted(tree) as running:
            yield running
