"""Debian's Chromium, driven by Playwright, and sidecars to look at."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suites.browser import installation
from suites.browser.sidecar import Sidecar

sys.path.append(str(installation.install(installation.directory())))

SCENARIOS = {
    "overload": ("--scenario=overload", "--fault-at=1", "--mend-at=900"),
    "reconnect-jump": ("--scenario=reconnect-jump", "--fault-at=3", "--mend-at=900"),
    "stall": ("--scenario=stall", "--fault-at=8", "--mend-at=900"),
}
"""By name: what the simulated server is told. A fault begins early and lasts as long as the suite."""
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--js-flags=--expose-gc"]
PATIENCE_MS = 15_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    program = shutil.which("chromium")
    if program is None and "ubuntu" in Path("/etc/os-release").read_text(encoding="utf-8").lower():
        pytest.skip("Ubuntu has no package of Chromium, but a snap alone")
    assert program, "chromium is not installed: deploy/setup.sh chromium"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def sidecars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sidecar]]:
    """One for each scenario; they start together, for each needs its time."""
    with ExitStack() as stack:
        made = {
            name: stack.enter_context(Sidecar(tmp_path_factory.mktemp(name), *words))
            for name, words in SCENARIOS.items()
        }
        for one in made.values():
            one.await_ready()
        yield made


class Looker:
    """Opens pages, each in a context of its own; at the end none may have said a word in the console."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.said: list[str] = []

    def open(self, url: str, *, quiet: bool = True, clock: bool = False, **context: Any) -> Any:
        """Open a page; with `quiet` it may say nothing in the console, with `clock` its time can be set forward."""
        made = self._browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self._contexts.append(made)
        made.set_default_timeout(PATIENCE_MS)
        page = made.new_page()
        if quiet:
            page.on(
                "console",
                lambda message: self.said.append(f"{message.type}: {message.text} {message.location}"),
            )
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        if clock:
            page.clock.install()
        page.goto(url)
        return page

    def close(self) -> None:
        for context in self._contexts:
            # An answer that is being made up for a page which is gone would fail the next test.
            context.unroute_all(behavior="wait")
            context.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Any]]:
    looker = Looker(browser)
    yield looker.open
    looker.close()
    assert looker.said == []


@pytest.fixture(scope="session")
def violations() -> Callable[[Any], list[str]]:
    """What axe has against a page: each finding in a line."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()

    def found(page: Any) -> list[str]:
        return [
            f"{one['id']}: {node['html'][:200]} {node.get('failureSummary')}"
            for one in axe.run(page).response["violations"]
            for node in one["nodes"]
        ]

    return found
