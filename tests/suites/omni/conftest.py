"""One real vLLM-Omni for all tests here, installed if it is not yet, and a sidecar on what its tap writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from omniwatch.desk.child_process import ChildProcess
from suites.omni.installation import Say, directory, install
from suites.omni.server import Omni, following, serving


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Prints at once, whatever pytest captures: what takes minutes shows that it goes on, and what was measured."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def printed(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{line}")
            sys.stdout.flush()

    return printed


@pytest.fixture(scope="session")
def omni(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[Omni]:
    install(directory(), say)
    with serving(directory(), tmp_path_factory.mktemp("omni"), say) as up:
        yield up


@pytest.fixture(scope="session")
def sidecar(tmp_path_factory: pytest.TempPathFactory, omni: Omni) -> Iterator[ChildProcess]:
    with following(omni.spool, tmp_path_factory.mktemp("sidecar")) as service:
        yield service
