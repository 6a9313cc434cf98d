from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omniwatch.system.sdnotify import READY, STOPPING, WATCHDOG, notify, reloading, status, watchdog_interval


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    name = f"@omniwatch-{secrets.token_hex(8)}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
        receiver.settimeout(10)
        yield name, receiver


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (READY, b"READY=1"),
        (STOPPING, b"STOPPING=1"),
        (WATCHDOG, b"WATCHDOG=1"),
        (reloading(12.3456789), b"RELOADING=1\nMONOTONIC_USEC=12345678"),
        (status("2 streams,\n no  source\n"), b"STATUS=2 streams, no source"),
        (status("等待"), "STATUS=等待".encode()),
    ],
)
def test_messages_arrive(manager: tuple[str, socket.socket], message: str, sent: bytes) -> None:
    name, receiver = manager
    assert notify(message, {"NOTIFY_SOCKET": name})
    assert receiver.recv(4096) == sent


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_manager_nothing_is_sent(environ: dict[str, str]) -> None:
    assert notify(READY, environ) is False


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert notify(READY, {"NOTIFY_SOCKET": str(tmp_path / "gone")}) is False
    assert notify(READY, {"NOTIFY_SOCKET": "/" + "x" * 200}) is False


def test_a_manager_that_does_not_read_is_waited_for_only_so_long(manager: tuple[str, socket.socket]) -> None:
    name, receiver = manager
    sent = 0
    while notify(WATCHDOG, {"NOTIFY_SOCKET": name}):
        sent += 1
    assert sent > 0
    assert receiver.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "41"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, None),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": ""}, 0.25),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "me"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_must(
    environ: dict[str, str], interval: float | None
) -> None:
    assert watchdog_interval(environ, pid=41) == interval


def test_the_watchdog_of_this_process() -> None:
    assert watchdog_interval({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}) == 1.0
    assert watchdog_interval({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getppid())}) is None


def test_it_reaches_a_manager_from_another_process(manager: tuple[str, socket.socket]) -> None:
    name, receiver = manager
    code = "import os; from omniwatch.system.sdnotify import notify, READY; notify(READY, os.environ)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "NOTIFY_SOCKET": name}, check=True)
    assert receiver.recv(4096) == b"READY=1"
