"""The images, built once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from suites.container.engine import Engine, engine


class Built(NamedTuple):
    """An engine that has both images, and the archives that they were saved to."""

    engine: Engine
    archives: dict[str, Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    directory = tmp_path_factory.mktemp("containers")
    made = engine(directory)
    try:
        yield Built(made, made.build(directory / "dist"))
    finally:
        made.podman("rm", "--all", "--force", "--time=0", check=False)
        # Pieces of images may be mounted; podman knows.
        made.podman("system", "reset", "--force", check=False)
        shutil.rmtree(directory, ignore_errors=True)
