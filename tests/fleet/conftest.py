"""The order of the fleet's tests: most of them wait, and the one that waits longest begins first."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the time that tests are given; those of one file that share what takes minutes stay together, first."""

    def given_s(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 0.0

    items.sort(key=given_s, reverse=True)
