"""The manual's figures are those of the code: generated parts are fresh, and every figure of the sources has its row."""

from __future__ import annotations

import re

import pytest

from helpers import claims, plan_pages
from helpers.paths import CLONE
from omniwatch.desk.plan.components import parse_types
from omniwatch.desk.plan.device import DEVICES
from omniwatch.desk.plan.disk import reloads
from omniwatch.desk.plan.memory import Wanted, compute
from omniwatch.desk.plan.released import RELEASED

DOCS = CLONE / "docs"


@pytest.mark.parametrize("name", [plan_pages.PLAN, plan_pages.PLAN_ZH, plan_pages.CLAIMS])
def test_what_is_generated_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == plan_pages.pages(DOCS)[DOCS / name], "make plan-pages"


def test_every_profile_is_in_the_table() -> None:
    rows = plan_pages.profile_table().splitlines()
    assert any(row.startswith("| int4 | 19.1 | 2.2 | 0.4 | 3.9 | 3.5 | 29.1 | 42 | 75% |") for row in rows)
    assert any(row.startswith("| 3b-int8-moe4 | - | - | - | - | - | cannot be | 13 |") for row in rows)


def test_each_row_says_what_how_and_whether() -> None:
    rows = [*claims.edge(), *claims.flash()]
    assert len({row.claim for row in rows}) == len(rows)
    for row in rows:
        assert all(row), row
        assert row.verdict.startswith((claims.HELD, claims.NOT, claims.CANNOT)), row


FIGURES = {
    "edge": "10 % 3 s 12.5 750 79 64 16 4 38 0.8 1.1 21 1.2 1.5 0.25 13 0.3 0.4 3 2.1 1.2 8 150 12 75 6 40 98.2 63 100 300 10 60 15 800 20 120 32768 206 240",
    "flash": "211 507 80 144.8 12.4 0.7.2 30 44.1 8 0.92 32768 68 1.9 1020 3.4 0.51 1350 2.1 73 32 38 76 42 64 23 19 1.1 0.75 50 10 12 48 5 1 18 0.1 512 25 160 120 24 40",
}
"""The figures of the two documents, in their order."""


@pytest.mark.parametrize("which", FIGURES)
def test_no_figure_is_left_out(which: str) -> None:
    told = " ".join(row.claim for row in getattr(claims, which)())
    held = set(re.findall(r"\d+(?:\.\d+)*", told))
    assert [
        figure
        for figure in FIGURES[which].replace("%", "").split()
        if figure.strip("s") not in held and figure != "s"
    ] == []


def test_the_reload_times_are_bytes_by_speed() -> None:
    page = (DOCS / "one-model-one-board.md").read_text(encoding="utf-8")
    for types, stage in ((["talker=bf16"], 1), (["talker=int4"], 1), (["thinker=int4"], 0)):
        result = compute(Wanted(name="", model=RELEASED, device=DEVICES["orin-64"], types=parse_types(types)))
        part = reloads(result, 2.5e9)[stage]
        assert f"| {part.bytes / 1e9:.1f} | {part.seconds:.1f} s |" in page
