"""SECURITY.md: each promise and each trust boundary names tests that there are."""

from __future__ import annotations

import re

from helpers.manual import ROOT

TABLES = [
    line
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| promise |", "| boundary |"))
]


def test_each_row_names_tests_that_there_are() -> None:
    assert len(TABLES) > 10
    for row in TABLES:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
