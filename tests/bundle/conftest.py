"""A device that is a file tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.installation import device


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return device(tmp_path)
