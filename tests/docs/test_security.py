"""SECURITY.md: each promise and each trust boundary names tests that there are."""

from __future__ import annotations

import ast
import re

import pytest

from helpers.manual import ROOT

ROWS = [
    line
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| promise |", "| boundary |"))
]


def collected(path: str) -> set[str]:
    """Return the tests of a file that pytest collects: functions of the module, and methods of its classes of tests."""
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    classes = [one for one in module.body if isinstance(one, ast.ClassDef) and one.name.startswith("Test")]
    bodies = [module.body, *(one.body for one in classes)]
    found = [
        one for body in bodies for one in body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return {one.name for one in found if one.name.startswith("test_")}


def test_each_table_was_read() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_row_names_tests_that_are_collected(row: str) -> None:
    held_by = row.strip("| ").rpartition(" | ")[2].split("<br>")
    for one in held_by:
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", one)
        assert named, f"{one}: not a test"
        assert re.fullmatch(r"test_\w+\.py", named[1].rpartition("/")[2])
        assert named[2] in collected(named[1]), one
