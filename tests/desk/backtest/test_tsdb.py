"""The Prometheus of a backtest, started with what this one knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.old_tools import old_tools
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.tsdb import Tsdb, check_rules

FLAG = "--storage.tsdb.allow-overlapping-blocks"


@pytest.mark.parametrize("has_flag", [True, False])
def test_blocks_that_overlap_are_allowed_where_they_have_to_be(tmp_path, monkeypatch, has_flag):
    """Prometheus before 2.39 does not start on them without the flag; 3.x knows no such flag."""
    (tmp_path / "bin").mkdir()
    prometheus = Path(old_tools(tmp_path / "bin")["prometheus"])
    called = tmp_path / "called"
    says = f'[ "$1" = --help ] && echo "      {FLAG if has_flag else "--storage.tsdb.path"}" && exit 0'
    prometheus.write_text(f'#!/bin/sh\n{says}\necho "$@" > {called}\nexit 1\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(BacktestError), Tsdb(tmp_path / "work", 1, 5):
        pass
    assert (FLAG in called.read_text().split()) is has_flag


def test_an_old_promtool_reads_the_rules_without_lint(tmp_path, monkeypatch):
    promtool = old_tools(tmp_path)["promtool"]
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    check_rules([tmp_path / "any.rules.yaml"])
    assert f"check rules {tmp_path}/any.rules.yaml" in Path(f"{promtool}.calls").read_text()
