"""The clocks of a sidecar."""

from __future__ import annotations

import pytest

from helpers.sidecars import Times


@pytest.fixture
def times() -> Times:
    return Times()
