"""A tap on an application that is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripted_tap import Tapped


@pytest.fixture
def tapped(tmp_path: Path) -> Tapped:
    return Tapped(tmp_path)
