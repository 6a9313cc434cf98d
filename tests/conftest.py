"""Options of the test run, and what tests of many files start from."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from helpers import needs
from helpers.programs import BEYOND_PYTHON, path_without
from omniwatch import cli as _read_before_its_place_is_another  # noqa: F401
from omniwatch.system import places

# An example that a busy machine holds up for 200 ms, the default, has not failed.
settings.register_profile("omniwatch", parent=settings.default, deadline=None)
settings.load_profile("omniwatch")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew instead of comparing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put a file of e2e after every third of the others: it mostly waits, and those beside it compute meanwhile."""
    files = list(dict.fromkeys(item.path for item in items))
    waiting = [path for path in files if path.parent.name == "e2e"]
    computing = [path for path in files if path.parent.name != "e2e"]
    place = {path: (number, 0) for number, path in enumerate(computing)}
    place |= {path: (3 * number, 1) for number, path in enumerate(waiting)}
    items.sort(key=lambda item: place[item.path])
    for item in items:
        if {"alerts", "e2e", "suites"} & set(item.path.parts[-3:-1]):
            item.add_marker("programs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hide the programs from a test that does not say it needs them: `make quick` runs it on a machine without."""
    path = os.environ["PATH"]
    if item.get_closest_marker("programs") is None:
        os.environ["PATH"] = _bare_path(path)
    try:
        return (yield)
    finally:
        os.environ["PATH"] = path


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what an older tool of this distribution cannot do."""
    for marker in item.iter_markers("needs"):
        for feature in marker.args:
            if not needs.TOOLS.knows(feature):
                pytest.skip(feature.lacks)


@cache
def _bare_path(path: str) -> str:
    return path_without(BEYOND_PYTHON, path, Path(_links.name))


_links = tempfile.TemporaryDirectory(prefix="omniwatch-bare-path-")


@pytest.fixture(autouse=True, scope="session")
def no_settings_of_this_machine() -> Iterator[None]:
    """A command reads no settings but those that its test names, whatever is in /etc of this machine. One that runs in a process of
    its own is given a --config.file.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "CONFIG", Path("/nowhere/omniwatch.yaml"))
        yield


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that a test runs in this process sets up the log: the next test finds it as it was."""
    logger = logging.getLogger("omniwatch")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    level, logger.propagate, logger.handlers[:] = before
    logger.setLevel(level)


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither promtool nor others are found: all unit tests of all rules take it seconds, and this test is not about them."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))


@pytest.fixture
def silent_host() -> Iterator[int]:
    """A port where 127.0.0.2 answers no handshake, for those that wait to be accepted are too many."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
