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
from collections.abc import Iterator
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
UNPACKED, COMPRESSED = 165 * 10**6, 60 * MIB
"""150 MB were agreed on; `watch` has brought 12 more since: rich and Pygments, compiled."""


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
    mounts = ["--read-only", "--group-add=4242", f"--volume={spool}:/run/omniwatch:ro"]
    with built.engine.container(*ours, *mounts, SIDECAR, "exporter", *its) as container:
        assert wait_until(lambda: settled(port, spool), what="the sidecar inside") == outside
        assert built.engine.podman("exec", container, "id", "-u").stdout == "65532\n"
        refused = built.engine.podman("exec", container, "touch", "/opt/omniwatch/x", check=False)
        assert "Read-only file system" in refused.stderr
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


def test_a_server_outside_takes_the_tap_from_a_volume(built: Built, tmp_path: Path) -> None:
    (tmp_path / "tap").mkdir()
    os.chown(tmp_path / "tap", 65532, 65532)
    built.engine.podman("run", "--rm", f"--volume={tmp_path}/tap:/tap", SIDECAR, "tap-path", "--copy", "/tap")
    script = "import omniwatch.tap; print(omniwatch.tap.Tap, omniwatch.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "tap")},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"<class 'omniwatch.tap.Tap'> {tmp_path}/tap/omniwatch/__init__.py\n"
    assert built.engine.podman("run", "--rm", SIDECAR, "tap-path").stdout == "/opt/omniwatch/tap\n"


def test_sizes_and_the_time_to_an_answer(built: Built, spool: Path) -> None:
    size = json.loads(built.engine.podman("image", "inspect", SIDECAR).stdout)[0]["Size"]
    packed = built.archives["omniwatch"].stat().st_size
    port = free_port()
    began = time.monotonic()
    with built.engine.container(
        "--network=host", SIDECAR, "exporter", f"--web.listen-address=127.0.0.1:{port}"
    ):
        wait_until(lambda: counted(port), what="the sidecar")
        took = time.monotonic() - began
    sys.stderr.write(
        f"{size / 1e6:.0f} MB, {packed / MIB:.0f} MiB compressed, {took:.1f} s to the first page\n"
    )
    assert size <= UNPACKED
    assert packed <= COMPRESSED


def test_the_same_commit_gives_the_same_archives(built: Built, tmp_path: Path) -> None:
    again = built.engine.build(tmp_path)
    assert {name: path.read_bytes() == built.archives[name].read_bytes() for name, path in again.items()} == {
        "omniwatch": True,
        "omniwatch-desk": True,
    }
