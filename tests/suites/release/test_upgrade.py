"""From this version to one of another number and back, as a .deb: settings, state and counters stay.

A file of state of a format that a program does not know, as after a downgrade, is said in the log, and the program starts over.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import wait_until
from omniwatch import __version__
from suites.release import state
from suites.release.clones import Released
from suites.release.conftest import NEWER, Newer
from suites.system.machine import Machine, base, booted, copy_of, put

SIDECAR, BRIDGE = "omniwatch.service", "bridge.service"
CONFIG, STATE, WAITING = (
    "etc/omniwatch/omniwatch.yaml",
    "var/lib/omniwatch",
    "var/lib/omniwatch-notify/waiting.json",
)
SETTINGS = """sources:
  - tail:/run/omniwatch/events.jsonl
site:
  device: orin-7
notify:
  listen_address: 127.0.0.1:9847
  robots:
    - kind: feishu
      url_file: /etc/omniwatch/robot.url
"""
UNREACHED = "https://127.0.0.1:9/open-apis/bot/v2/hook/x"
PAGE = {
    "version": "4", "status": "firing", "receiver": "page", "groupKey": "{}:{}", "externalURL": "http://127.0.0.1",
    "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "truncatedAlerts": 0,
    "alerts": [{
        "status": "firing", "labels": {"alertname": "TokenRTT", "severity": "page"}, "annotations": {"summary": "late"},
        "startsAt": "2026-01-01T00:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "", "fingerprint": "1",
    }],
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(released: Released, newer: Newer) -> Iterator[Machine]:
    """A booted machine with this version's package, its settings, and a spool that was read."""
    with copy_of(base(), "upgrade") as tree:
        for file in (released.file("omniwatch_*_amd64.deb"), newer.deb):
            shutil.copy(file, tree / "srv" / file.name)
        (tree / "srv/events.jsonl").write_bytes(state.events())
        with booted(tree) as running:
            running.run("dpkg", "-i", f"/srv/omniwatch_{__version__}_amd64.deb")
            put(running, CONFIG, SETTINGS)
            put(running, "etc/omniwatch/robot.url", f"{UNREACHED}\n", 0o600)
            running.run("cp", "/srv/events.jsonl", "/run/omniwatch/events.jsonl")
            running.run("systemctl", "stop", SIDECAR)
            state.put_history(tree / STATE)
            running.run("systemctl", "start", SIDECAR)
            start_bridge(running)
            yield running


def start_bridge(machine: Machine) -> None:
    machine.run(
        "systemd-run", f"--unit={BRIDGE}", "--property=Restart=no", "--collect",
        *("omniwatch", "notify", f"--config.file=/{CONFIG}", f"--state-dir=/{Path(WAITING).parent}"),
    )  # fmt: skip
    wait_until(lambda: "listening on" in log(machine, BRIDGE), what="the bridge")


def log(machine: Machine, unit: str) -> str:
    """What a unit logged since it last started."""
    invocation = machine.show(unit, "InvocationID")
    return machine.run("journalctl", "--no-pager", f"_SYSTEMD_INVOCATION_ID={invocation}").stdout


def waiting(machine: Machine) -> list[dict[str, Any]]:
    """The messages that the bridge keeps."""
    with suppress(FileNotFoundError):
        return [entry["message"] for entry in json.loads((machine.tree / WAITING).read_text())["waiting"]]
    return []


def change_to(machine: Machine, number: str) -> None:
    """Install the other package, and restart the bridge, which no package knows here."""
    machine.run("dpkg", "-i", "--force-confold", f"/srv/omniwatch_{number}_amd64.deb")
    assert machine.run("omniwatch", "--version").stdout == f"omniwatch, version {number}\n"
    machine.run("systemctl", "stop", BRIDGE)
    start_bridge(machine)


def test_a_package_is_changed_for_a_newer_one_and_back(machine: Machine) -> None:
    spool = (machine.tree / "srv/events.jsonl").read_bytes()
    before = wait_until(
        lambda: state.counted(machine.metrics(), spool), timeout=60, what="the spool to be read"
    )
    assert state.has_history(machine.feed())
    page = f"import json,urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:9847/page', json.dumps({PAGE!r}).encode(), {{'Content-Type': 'application/json'}}))"
    machine.run("python3", "-c", page)
    kept = wait_until(lambda: waiting(machine), what="the message to be kept")
    pid = machine.show(SIDECAR, "MainPID")
    for number in (NEWER, __version__):
        change_to(machine, number)
        assert (machine.tree / CONFIG).read_text() == SETTINGS
        assert wait_until(lambda: state.counters(machine.metrics()), what="the sidecar") == before
        assert [name for name in machine.metrics() if f'version="{number}"' in name], (
            "of omniwatch_build_info"
        )
        assert machine.show(SIDECAR, "MainPID") != pid
        assert waiting(machine) == kept
        assert state.has_history(machine.feed())


def test_state_of_a_later_format_is_said_and_started_over(machine: Machine) -> None:
    machine.run("systemctl", "stop", SIDECAR, BRIDGE)
    state.make_later(machine.tree / STATE)
    (machine.tree / WAITING).write_text('{"version": 2, "kept": {}}')
    # Where the sidecar starts over it would count what the spool holds once more.
    machine.run("cp", "/dev/null", "/run/omniwatch/events.jsonl")
    machine.run("systemctl", "start", SIDECAR)
    start_bridge(machine)
    found = wait_until(machine.metrics, what="the sidecar")
    assert set(state.counters(found).values()) == {0}
    assert not state.has_history(machine.feed())
    assert state.refused(log(machine, SIDECAR))
    assert "what waited cannot be read" in log(machine, BRIDGE)
    wait_until(lambda: state.is_own(machine.tree / STATE), what="a checkpoint of its own")
