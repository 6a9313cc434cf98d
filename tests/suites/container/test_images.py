"""The images as podman runs them: what they follow, what they say is missing, what survives a kill, and how large they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.waiting import wait_until
from omniwatch import __version__
from omniwatch.cli import DESK_COMMANDS
from omniwatch.desk.child_process import free_port
from suites.container.conftest import Built

SIDECAR = f"localhost/omniwatch:{__version__}"
DESK = f"localhost/omniwatch-desk:{__version__}"
MIB = 2**20
UNPACKED, COMPRESSED = 150 * 10**6, 60 * 10**6
SERVER = CLONE / "tests/suites/chaos/chat_server.py"
QUESTION = json.dumps({"messages": [], "stream": True, "modalities": ["audio"]}).encode()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A folder of a host's, with the events of a scenario, that a group of the host's may read."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o750)
    os.chown(folder, 0, 4242)
    command = [
        sys.executable,
        "-m",
        "omniwatch",
        "simulate",
        "--scenario",
        "reconnect-jump",
        "--speed",
        "max",
        "--start-time",
        "0",
    ]
    events = subprocess.run(command, capture_output=True, check=True, cwd=CLONE).stdout
    (folder / "events.jsonl").write_bytes(events)
    os.chown(folder / "events.jsonl", 0, 4242)
    (folder / "events.jsonl").chmod(0o640)
    return folder


def counted(port: int) -> dict[str, str]:
    """What a sidecar counts of its events, whatever it calls its source; nothing while it does not answer."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page,
    ):
        lines = re.sub(r'source="[^"]*"', "", page.read().decode()).splitlines()
        return dict(
            line.rsplit(" ", 1)
            for line in lines
            if line.startswith(("omniwatch_events", "omni_audio", "omni_turns"))
        )
    return {}


@pytest.fixture
def outside(spool: Path) -> Iterator[dict[str, str]]:
    """What the same program counts of the same events outside of a container."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "omniwatch",
        "exporter",
        str(spool / "events.jsonl"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sidecar:
        try:
            yield wait_until(lambda: settled(port, spool), what="the sidecar outside")
        finally:
            sidecar.terminate()


def settled(port: int, spool: Path) -> dict[str, str]:
    """What was counted once every line of the spool was read."""
    found = counted(port)
    events = sum(float(value) for name, value in found.items() if name.startswith("omniwatch_events_total{"))
    return found if events == len((spool / "events.jsonl").read_bytes().splitlines()) else {}


@pytest.fixture(params=["host", "bridge"])
def network(request: pytest.FixtureRequest) -> tuple[int, list[str], list[str]]:
    """A port of this machine, podman's flags and the sidecar's by which a container's page is there."""
    port = free_port()
    if request.param == "host":
        return port, ["--network=host"], [f"--web.listen-address=127.0.0.1:{port}"]
    return port, [f"--publish=127.0.0.1:{port}:9842"], ["--web.listen-address=0.0.0.0:9842"]


def test_it_follows_the_hosts_spool_as_a_process_outside_does(
    built: Built, spool: Path, outside: dict[str, str], network: tuple[int, list[str], list[str]]
) -> None:
    port, ours, its = network
    its_port = its[0].rpartition(":")[2]
    mounts = ["--read-only", "--group-add=4242", f"--volume={spool}:/run/omniwatch:ro"]
    with built.engine.container(*ours, *mounts, SIDECAR, "exporter", *its) as container:
        assert wait_until(lambda: settled(port, spool), what="the sidecar inside") == outside
        assert built.engine.podman("exec", container, "id", "-u").stdout == "65532\n"
        refused = built.engine.podman("exec", container, "touch", "/opt/omniwatch/x", check=False)
        assert "Read-only file system" in refused.stderr
        status = built.engine.podman("exec", container, "cat", "/proc/1/status").stdout
        assert re.findall(r"^Cap(?:Prm|Eff|Amb):\t(\w+)$", status, re.MULTILINE) == ["0" * 16] * 3
        shown = built.engine.podman(
            "exec", container, "omniwatch", "watch", "--once", f"http://127.0.0.1:{its_port}", check=False
        )
        assert (shown.returncode, shown.stderr) == (0, ""), shown
        # podman runs the health check by a timer of systemd's. This is the check itself.
        check = json.loads(built.engine.podman("image", "inspect", SIDECAR).stdout)[0]["Healthcheck"]["Test"]
        if "--network=host" not in ours:
            built.engine.podman("exec", container, *check[1:])


def test_counters_survive_a_kill_where_the_state_is_on_a_volume(built: Built, spool: Path) -> None:
    port = free_port()
    state = [
        "--volume=state:/var/lib/omniwatch",
        "--group-add=4242",
        f"--volume={spool}:/run/omniwatch:ro",
        "--network=host",
    ]
    run = [*state, SIDECAR, "exporter", f"--web.listen-address=127.0.0.1:{port}"]
    with built.engine.container(*run) as container:
        before = wait_until(lambda: settled(port, spool), what="the sidecar")
        built.engine.podman("kill", "--signal=KILL", container)
    (spool / "events.jsonl").write_bytes(b"")
    with built.engine.container(*run):
        assert wait_until(lambda: counted(port), what="the sidecar again") == before


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("spool", "/run/omniwatch is missing"),
        ("group", "/run/omniwatch is not readable"),
        ("state", "no directory for state can be written"),
        ("cgroups", "the host's cgroups are hidden"),
        ("bus", "the system bus is hidden"),
    ],
)
def test_each_mount_that_is_missing_is_said(
    built: Built, spool: Path, tmp_path: Path, without: str, said: str
) -> None:
    (tmp_path / "cgroups/system.slice").mkdir(parents=True)
    (tmp_path / "bus").touch()
    flags = {
        "spool": f"--volume={spool}:/run/omniwatch:ro",
        "group": "--group-add=4242",
        "state": "--volume=other:/var/lib/omniwatch",
        "cgroups": f"--volume={tmp_path}/cgroups:/sys/fs/cgroup:ro",
        "bus": f"--volume={tmp_path}/bus:/run/dbus/system_bus_socket:ro",
    }
    given = [flag for name, flag in flags.items() if name != without]
    with built.engine.container(
        "--read-only",
        "--network=host",
        *given,
        SIDECAR,
        "exporter",
        f"--web.listen-address=127.0.0.1:{free_port()}",
    ) as container:

        def log() -> str:
            return built.engine.podman("logs", container, check=False).stderr

        wait_until(lambda: "listening" in log(), what="the start")
        assert [line for line in log().splitlines() if "not mounted" in line and said not in line] == []
        assert said in log()


def test_the_journal_is_refused_in_a_line(built: Built) -> None:
    done = built.engine.podman("run", "--rm", SIDECAR, "exporter", "journal:qwen3-omni.service", check=False)
    assert done.returncode == 2
    assert "Error: journal:qwen3-omni.service: this container has no journalctl" in done.stderr


def test_a_device_has_no_command_of_a_desk_and_the_other_image_has(built: Built) -> None:
    for name in sorted(DESK_COMMANDS):
        done = built.engine.podman("run", "--rm", SIDECAR, name, check=False)
        assert done.returncode == 2, name
    listed = built.engine.podman("run", "--rm", DESK).stdout
    assert "At a desk" in listed
    assert built.engine.podman(
        "run", "--rm", DESK, "simulate", "--scenario", "overload", "--speed", "max"
    ).stdout


def test_a_server_outside_speaks_through_the_tap_that_was_copied(
    built: Built, spool: Path, tmp_path: Path
) -> None:
    (tmp_path / "tap").mkdir()
    os.chown(tmp_path / "tap", 65532, 65532)
    built.engine.podman("run", "--rm", f"--volume={tmp_path}/tap:/tap", SIDECAR, "tap-path", "--copy", "/tap")
    of_tap = {**os.environ, "PYTHONPATH": str(tmp_path / "tap")}
    script = "import omniwatch.tap; print(omniwatch.__file__)"
    found = subprocess.check_output([sys.executable, "-c", script], env=of_tap, cwd="/", text=True)
    assert found == f"{tmp_path}/tap/omniwatch/__init__.py\n"
    events = spool / "events.jsonl"
    events.unlink()
    server, sidecar = free_port(), free_port()
    mounts = ["--read-only", f"--volume={spool}:/run/omniwatch:ro", "--group-add=4242", "--network=host"]
    with (
        subprocess.Popen(
            [sys.executable, str(SERVER), f"127.0.0.1:{server}", str(events)], env=of_tap, cwd="/"
        ) as speaking,
        built.engine.container(*mounts, SIDECAR, "exporter", f"--web.listen-address=127.0.0.1:{sidecar}"),
    ):
        try:
            ask = urllib.request.Request(
                f"http://127.0.0.1:{server}/v1/chat/completions",
                QUESTION,
                {"Content-Type": "application/json"},
            )
            wait_until(lambda: answered(ask), what="the server outside")
            wait_until(lambda: turns(sidecar) == 1, what="its turn")
        finally:
            speaking.terminate()


def turns(port: int) -> float:
    return sum(float(value) for name, value in counted(port).items() if name.startswith("omni_turns_total{"))


def answered(ask: urllib.request.Request) -> bytes:
    with contextlib.suppress(OSError), urllib.request.urlopen(ask, timeout=5) as answer:
        return bytes(answer.read())
    return b""


def test_the_tap_lies_in_the_image_alone(built: Built) -> None:
    assert built.engine.podman("run", "--rm", SIDECAR, "tap-path").stdout == "/opt/omniwatch/tap\n"


def test_sizes_and_the_time_to_an_answer(built: Built) -> None:
    """The times are printed, beside those of a process without a container: what a busy machine does to them fails nobody."""
    size = json.loads(built.engine.podman("image", "inspect", SIDECAR).stdout)[0]["Size"]
    packed = built.archives["omniwatch"].stat().st_size

    def until_it_answers(start: Callable[[str], contextlib.AbstractContextManager[object]]) -> float:
        port = free_port()
        began = time.monotonic()
        with start(f"--web.listen-address=127.0.0.1:{port}"):
            wait_until(lambda: counted(port), what="the sidecar")
            return time.monotonic() - began

    inside = [
        until_it_answers(lambda at: built.engine.container("--network=host", SIDECAR, "exporter", at))
        for _ in range(3)
    ]
    outside = [until_it_answers(bare) for _ in range(3)]
    sys.stderr.write(
        f"{size / 1e6:.0f} MB, {packed / 1e6:.0f} MB compressed; to the first page {min(inside):.2f} s, {min(outside):.2f} s outside\n"
    )
    assert size <= UNPACKED
    assert packed <= COMPRESSED


@contextlib.contextmanager
def bare(at: str) -> Iterator[None]:
    """A sidecar without a container."""
    command = [sys.executable, "-m", "omniwatch", "exporter", at, "--config.file=/dev/null"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sidecar:
        try:
            yield
        finally:
            sidecar.terminate()


def test_the_same_commit_gives_the_same_archives(built: Built, tmp_path: Path) -> None:
    again = built.engine.build(tmp_path)
    assert {name: path.read_bytes() == built.archives[name].read_bytes() for name, path in again.items()} == {
        "omniwatch": True,
        "omniwatch-desk": True,
    }
