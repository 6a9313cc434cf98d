"""One real vLLM-Omni for all tests here, installed if it is not yet, and a sidecar on what its tap writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from omniwatch.system.child_process import ChildProcess, free_port
from suites.omni.installation import Say, directory, install
from suites.omni.server import Omni, serving


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
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "omniwatch", "exporter", "--config.file=/dev/null", f"tail:{omni.spool}"]
    service = ChildProcess(
        "sidecar",
        [*command, f"--web.listen-address={address}"],
        tmp_path_factory.mktemp("sidecar"),
        f"http://{address}",
    )
    try:
        service.await_ready("/-/ready")
        yield service
    finally:
        service.stop()
