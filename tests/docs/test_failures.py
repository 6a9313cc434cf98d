"""The failure table: every row has a test that is there. The catalogue holds that every alert has a row."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import PurePosixPath

import pytest
import yaml

from helpers.manual import ROOT
from omniwatch.bundle import render
from omniwatch.settings import Settings

sys.path.insert(0, str(ROOT / "docs"))

import failures

ROWS = [row for rows in failures.areas().values() for row in rows]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.failure)


@cache
def bundle() -> render.Files:
    return render.render(Settings())


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def unit_tests(name: str) -> list[str]:
    """The names of promtool's tests in a rendered file."""
    (text,) = (text for path, text in bundle().items() if path.name == name)
    return [test["name"] for test in yaml.safe_load(text)["tests"]]


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    if file.endswith(".test.yaml"):
        return any(name.strip() in one for one in unit_tests(PurePosixPath(file).name))
    return (ROOT / file).is_file() and (not name or name in functions(file))


@each_row
def test_a_row_has_tests_that_are_there(row):
    assert row.tests
    assert [test for test in row.tests if not is_there(test)] == []


def test_what_an_alert_silences_is_read_from_the_routing():
    assert any("speech" in one for one in failures.inhibited(bundle(), "ModelServerDown", "failed"))
    assert failures.inhibited(bundle(), "ModelServerDown", "crash-loop") == []
    assert failures.inhibited(bundle(), "Watchdog") == []


def test_times_are_those_of_rule_and_delivery():
    row = failures.Row("", ["x"], alert="CodecDrift", seen_s=1)
    assert failures.within_s(row, failures.rules(bundle())["CodecDrift"]) == 1 + 15 + 7
    assert failures.seconds("1h30m5s") == 5405
