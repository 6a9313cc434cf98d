"""A page that shows what a command draws says which command drew it, and by which program."""

from __future__ import annotations

from helpers.paths import CLONE


def test_the_page_on_incidents_says_which_program_draws():
    said = " ".join((CLONE / "docs/incidents.md").read_text(encoding="utf-8").split())
    assert "by matplotlib" in said
    assert "`omniwatch curves` drew" in said
    assert "`omniwatch backtest --plot` draws its own" in said
