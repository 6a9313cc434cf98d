"""What every picture shares."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from omniwatch.desk import plotting


@pytest.mark.parametrize("length_s", [1, 9, 75, 600, 5400, 86400, 900_000])
def test_ticks_are_few_and_round(length_s):
    assert length_s / plotting.tick_s(length_s) <= 12
    assert plotting.tick_s(length_s) >= 1


def test_a_missing_matplotlib_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        plotting.PlotError, match=r"^a picture needs matplotlib: pip install 'omniwatch\[plot\]'$"
    ):
        plotting.check_target(Path("a.svg"))
