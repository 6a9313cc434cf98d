"""The ear across network namespaces, as in a container: a real path, an outage, a link-local address, no privileges."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers.listening import CHUNK_MS, Call
from helpers.paths import CLONE
from helpers.waiting import wait_until

IP = shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "ip"
READER = """
import socket, sys
reader = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
while reader.recv(65536):
    pass
"""
INSIDE = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
subprocess.run([sys.argv[2], "link", "set", "lo", "up"], check=True)
from helpers.listening import CHUNK_MS, Call
with Call() as call:
    call.stream_events.ask(1)
    call.say()
    call.until_arrived(CHUNK_MS)
"""


class Cable(NamedTuple):
    """A namespace with a listener's end of a cable; `ours` is the other end's interface, `ours_ll` its link-local address."""

    namespace: str
    ours: str
    address: str
    link_local: str


class Reader:
    """A client in another namespace that reads whatever comes."""

    def __init__(self, namespace: str, host: str, port: int) -> None:
        command = [IP, "netns", "exec", namespace, sys.executable, "-c", READER, host, str(port)]
        self._process = subprocess.Popen(command)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def ip(*words: str) -> str:
    return subprocess.run([IP, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0 or not Path(IP).exists():
        pytest.skip("needs root and iproute2, to make a network namespace")
    name = f"ow{secrets.token_hex(3)}"
    ours, theirs = f"{name}a", f"{name}b"
    made = subprocess.run([IP, "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    cable = ("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
    made = subprocess.run([IP, *cable], check=False, capture_output=True, text=True)
    if made.returncode:
        ip("netns", "del", name)
        pytest.skip(f"no cable between namespaces may be made here: {made.stderr.strip()}")
    try:
        ip("addr", "add", "198.18.77.1/30", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", name, "addr", "add", "198.18.77.2/30", "dev", theirs)
        ip("-n", name, "link", "set", theirs, "up")
        wait_until(lambda: "tentative" not in ip("-6", "addr", "show", "dev", ours, "scope", "link"))
        wait_until(lambda: "tentative" not in ip("-n", name, "-6", "addr", "show", "dev", theirs))
        link_local = ip("-6", "-o", "addr", "show", "dev", ours, "scope", "link").split()[3].split("/")[0]
        yield Cable(name, ours, "198.18.77.1", link_local)
    finally:
        subprocess.run([IP, "link", "del", ours], check=False)
        ip("netns", "del", name)


def call_over(cable: Cable, mode: Any = "kernel", *, link_local: bool = False) -> Call:
    if link_local:
        theirs = cable.ours[:-1] + "b"
        host = f"{cable.link_local}%{cable.ours}"
        return Call(
            mode,
            host=host,
            connect=lambda at: Reader(cable.namespace, f"{cable.link_local}%{theirs}", at[1]),
        )
    return Call(mode, host=cable.address, connect=lambda at: Reader(cable.namespace, cable.address, at[1]))


@pytest.mark.parametrize("link_local", [False, True])
def test_a_listener_in_another_namespace_is_heard(cable, link_local):
    with call_over(cable, link_local=link_local) as call:
        call.stream_events.ask(1)
        for _ in range(3):
            call.say()
        call.until_arrived(3 * CHUNK_MS)


def test_speech_said_while_the_link_is_down_arrives_when_it_is_up(cable):
    with call_over(cable) as call:
        call.stream_events.ask(1)
        call.say()
        call.until_arrived(CHUNK_MS)
        ip("link", "set", cable.ours, "down")
        call.say()
        wait_until(lambda: [event for event in call.arrived if event.waiting and event.ms == CHUNK_MS])
        ip("link", "set", cable.ours, "up")
        late = call.until_arrived(2 * CHUNK_MS)
        assert late.t - late.ago_ms / 1000 > call.arrived[-2].t - 0.2
        assert sum(event.retrans for event in call.arrived) > 0


def test_auto_does_not_believe_a_cable_this_short(cable):
    with call_over(cable, "auto") as call:
        assert call.line is not None
        call.stream_events.ask(1)
        call.say()
        wait_until(lambda: [event for event in call.arrived if event.ear == "sent"])
        assert call.new_line() is None


def test_no_privilege_is_needed_in_a_namespace_of_users():
    command = ["unshare", "--user", "--map-root-user", "--net"]
    if (
        not Path(IP).exists()
        or shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False).returncode
    ):
        pytest.skip("no user namespaces here")
    env = {**os.environ, "PYTHONPATH": str(Path(CLONE) / "exporter")}
    subprocess.run([*command, sys.executable, "-c", INSIDE, str(CLONE / "tests"), IP], check=True, env=env)
