"""A centre, and the order of the tests: most wait, and the one that waits longest begins first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.fleet_delivery import Centre, start


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    with ExitStack() as ending:
        yield start(tmp_path, ending)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the time that tests are given."""

    def given_s(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 0.0

    items.sort(key=given_s, reverse=True)
