"""Releases, built once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from suites.container.engine import Engine, engine
from suites.release.clones import Released, build, clone, release

NEWER = "999.0.0"
"""The number of the version to which, and from which, is changed."""


class Newer(NamedTuple):
    """The same program by another number."""

    clone: Path
    deb: Path


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("containers")
    made = engine(directory)
    try:
        yield made
    finally:
        made.podman("rm", "--all", "--force", "--time=0", check=False)
        made.podman("system", "reset", "--force", check=False)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def released(images: Engine, tmp_path_factory: pytest.TempPathFactory) -> Released:
    """A release of this clone."""
    return release(clone(tmp_path_factory.mktemp("first") / "clone"), images)


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Newer:
    directory = clone(tmp_path_factory.mktemp("newer") / "clone", NEWER)
    build(directory, "deploy/packaging/build.sh amd64")
    (deb,) = (directory / "dist").glob("omniwatch_*.deb")
    return Newer(directory, deb)
