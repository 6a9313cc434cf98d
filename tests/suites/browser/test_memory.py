"""A page that stays open for hours keeps no more than its window. `PAGE_HOURS=8` in `make nightly`."""

from __future__ import annotations

import os

import pytest

from suites.browser.made_up_feed import MadeUpFeed

pytestmark = pytest.mark.programs

START_T = 1_768_478_400
"""2026-01-15 12:00:00 UTC."""
FULL_S = 16 * 60
"""Seconds after which all that the page keeps of a quarter of an hour was replaced."""
END_S = int(float(os.environ.get("PAGE_HOURS", "0.5")) * 3600)
MOST_GROWTH = 1.1
MOST_TURNS = 50
"""Bad turns that a page lists."""


@pytest.mark.timeout(1800)
def test_memory_does_not_grow_with_the_time_that_a_page_is_open(sidecars, browser) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.clock.install(time=START_T)
    feed = MadeUpFeed(page, START_T)
    page.goto(sidecars["stall"].url)
    page.locator("#live").wait_for(state="visible")
    page.clock.pause_at(START_T + 60)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")

    def used_bytes() -> float:
        for _ in range(3):
            session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")

    def passes(seconds: int) -> None:
        for _ in range(seconds):
            feed.pass_second()

    passes(FULL_S)
    full = used_bytes()
    passes(END_S - FULL_S)
    grown = used_bytes() / full
    # An answer that comes late is one question less.
    assert feed.asked > 0.5 * END_S
    assert page.locator("#turns li").count() == MOST_TURNS
    context.close()
    assert grown <= MOST_GROWTH, (
        f"{full / 1e6:.1f} MB after {FULL_S} s, {grown:.2f} times as much after {END_S} s"
    )
