"""The bus conversation with a real systemd 252, recorded and played back byte for byte; and buses that misbehave."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.host_readers import scraped
from helpers.paths import DATA
from helpers.trees import grow
from omniwatch.host.systemd import Reader, object_path
from omniwatch.settings import Settings
from omniwatch.system.dbus import Bus, BusError

SYSTEMD = DATA / "systemd"
UNIT = "qwen3-omni.service"
Serve = Callable[[socket.socket], None]


def recorded(name: str) -> list[tuple[str, bytes]]:
    lines = (SYSTEMD / f"bus-{name}.txt").read_text(encoding="ascii").splitlines()
    return [(line.split()[0], bytes.fromhex(line.split()[1])) for line in lines]


def play(script: list[tuple[str, bytes]]) -> Serve:
    """Answer as the recorded bus did, and hang up at the first byte that differs from what was asked then."""

    def serve(peer: socket.socket) -> None:
        for direction, data in script:
            if direction == "in":
                peer.sendall(data)
                continue
            got = peer.recv(len(data), socket.MSG_WAITALL)
            if got != data:
                peer.close()
                return

    return serve


@contextmanager
def bus(root: Path, *conversations: Serve) -> Iterator[None]:
    address = root / "run/dbus/system_bus_socket"
    address.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()

        peers: list[socket.socket] = []

        def run() -> None:
            for serve in conversations:
                peers.append(listener.accept()[0])
                serve(peers[-1])

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for peer in peers:
                peer.close()


def scrape(reader: Reader) -> dict[str, float]:
    return {
        " ".join([s.name, *(v for k, v in s.labels.items() if k != "unit")]): s.value
        for family in reader.collect()
        for s in family.samples
        if s.value or "state" not in s.name
    }


def same_user(script: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The recording was made by uid 0; the length of another uid's greeting may differ."""
    return [
        (d, b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        if b"AUTH" in data
        else (d, data)
        for d, data in script
    ]


def test_a_running_unit_with_a_quota(tmp_path: Path) -> None:
    with bus(tmp_path, play(same_user(recorded("active")))):
        assert scrape(Reader(Settings(), tmp_path, lambda: 1_700_000_100.0, lambda: 107.25)) == {
            "omniwatch_systemd_up": 1,
            "omni_server_unit_state active": 1,
            "omni_server_unit_start_time_seconds": 1_700_000_000,
            "omni_server_unit_restarts_total": 0,
            "omni_server_cpu_quota_asked_cores": 0.5,
        }


def test_a_unit_that_gave_up(tmp_path: Path) -> None:
    """Five starts in 300 s, each ended at once: systemd stops trying and says failed."""
    with bus(tmp_path, play(same_user(recorded("failed")))):
        assert scrape(Reader(Settings(), tmp_path, lambda: 1_700_000_100.0, lambda: 109.0)) == {
            "omniwatch_systemd_up": 1,
            "omni_server_unit_state failed": 1,
            "omni_server_unit_start_time_seconds": 1_700_000_000,
            "omni_server_unit_restarts_total": 5,
        }


def test_a_unit_that_does_not_exist_has_no_state(tmp_path: Path) -> None:
    with bus(tmp_path, play(same_user(recorded("absent")))):
        assert scrape(Reader(Settings(), tmp_path)) == {"omniwatch_systemd_up": 1}


def test_a_machine_without_systemd(tmp_path: Path) -> None:
    assert scrape(Reader(Settings(), tmp_path)) == {"omniwatch_systemd_up": 0}


@pytest.mark.parametrize("there", ["run/systemd/system/", "run/dbus/system_bus_socket: nobody listens"])
def test_a_bus_that_does_not_answer_where_there_is_one_is_a_fault(tmp_path: Path, there: str) -> None:
    assert scraped(Reader(Settings(), grow(tmp_path, there)), "systemd") == {
        "omniwatch_systemd_up": 0,
        "omniwatch_host_reader_up systemd": 0,
    }


def test_a_bus_that_restarts_is_joined_anew(tmp_path: Path) -> None:
    script = same_user(recorded("active"))
    calls = [step for step in script if step[0] == "out"][-1]
    whole = play(script)

    def hang_up_after_one(peer: socket.socket) -> None:
        play(script[: script.index(calls) + 1])(peer)
        peer.close()

    with bus(tmp_path, hang_up_after_one, whole):
        reader = Reader(Settings(), tmp_path)
        assert scraped(reader, "systemd")["omniwatch_systemd_up"] == 0
        assert scrape(reader)["omniwatch_systemd_up"] == 1


OK = b"OK 1\r\n"
HUGE = b"l\2\1\1" + b"\xff" * 12
NONSENSE = b"l\2\0\1\0\0\0\0\1\0\0\0\6\0\0\0\5\1?\0\xff\xff\0\0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([b"REJECTED EXTERNAL\r\n"], "REJECTED"),
        ([OK, HUGE], "timed out"),
        ([OK, NONSENSE], "bus_socket: "),
        ([OK, b""], "timed out"),
        ([b""], "timed out"),
    ],
    ids=["refuses", "claims a huge message", "talks nonsense", "falls silent", "says nothing"],
)
def test_a_bus_that_misbehaves_is_an_error_in_bounded_time(
    tmp_path: Path, answers: list[bytes], says: str
) -> None:
    def serve(peer: socket.socket) -> None:
        for answer in answers:
            peer.recv(65536)
            peer.sendall(answer)

    with bus(tmp_path, serve), pytest.raises(BusError, match=says):
        Bus(tmp_path / "run/dbus/system_bus_socket", timeout_s=1.0)


def test_object_paths_are_escaped() -> None:
    assert object_path(UNIT) == "/org/freedesktop/systemd1/unit/qwen3_2domni_2eservice"
    assert object_path("1a@b.service") == "/org/freedesktop/systemd1/unit/_31a_40b_2eservice"
