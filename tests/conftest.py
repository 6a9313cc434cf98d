"""Options of the test run, and what tests of many files start from."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import pytest


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
