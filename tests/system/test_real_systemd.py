"""Installation, operation and removal under a real systemd."""

from __future__ import annotations

import json
import time

import pytest
from machine import Machine, put, snapshot

from system import server
from waiting import wait_until

SIDECAR, SERVER = "omniwatch.service", server.UNIT


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    put(machine, server.PATH, server.PROGRAM, 0o755)
    return snapshot(machine.tree)


@pytest.fixture(scope="module", autouse=True)
def installed(machine: Machine, before: dict[str, str]) -> str:
    return machine.run("/srv/venv/bin/omniwatch", *server.INSTALL).stdout


def frames(machine: Machine) -> float:
    return sum(
        value
        for name, value in answering(machine).items()
        if name.startswith("omniwatch_events_total") and 'ev="audio"' in name
    )


def answering(machine: Machine) -> dict[str, float]:
    return wait_until(machine.metrics, timeout=30, what="the sidecar to answer")


def test_both_units_run_and_the_sidecar_counts_what_the_server_says(machine: Machine, installed: str) -> None:
    assert "wrote /etc/systemd/system/omniwatch.service" in installed
    assert machine.show(SIDECAR, "ActiveState") == "active"
    assert machine.show(SERVER, "ActiveState") == "active"
    wait_until(lambda: frames(machine) > 20, what="twenty frames to be counted")
    found = answering(machine)
    assert found['omni_server_running{unit="qwen3-omni.service"}'] == 1
    assert found['omni_server_unit_state{state="active",unit="qwen3-omni.service"}'] == 1
    assert found["omniwatch_systemd_up"] == 1
    assert 'omni_codec_drift_ms{stream="0"}' in found


def test_neither_runs_as_root_and_the_spool_is_theirs_alone(machine: Machine) -> None:
    for unit in (SIDECAR, SERVER):
        pid = machine.show(unit, "MainPID")
        assert machine.run("stat", "-c", "%u", f"/proc/{pid}").stdout.strip() != "0", unit
    assert (
        machine.run("stat", "-c", "%a %U %G", "/run/omniwatch").stdout.strip() == "2770 omniwatch omniwatch"
    )
    assert machine.run("stat", "-c", "%G", "/run/omniwatch/events.jsonl").stdout.strip() == "omniwatch"


def test_a_second_installation_changes_nothing(machine: Machine) -> None:
    pid = machine.show(SIDECAR, "MainPID")
    again = machine.run("omniwatch", *server.INSTALL)
    assert again.stdout == "nothing to change\n"
    assert machine.show(SIDECAR, "MainPID") == pid, "and restarts nothing"


def test_status_tells_of_the_quota_that_does_not_apply(machine: Machine) -> None:
    """This machine's cpu controller is read-only: as on JetPack 5, systemd was asked for a quota and the kernel has none."""
    found = {
        f["what"]: f for f in json.loads(machine.run("omniwatch", "status", "--json", check=False).stdout)
    }
    assert found["files"]["ok"] is True
    assert found[SIDECAR]["ok"] is True
    assert found["sidecar"]["ok"] is True
    assert found["CPU quota"] == {
        "what": "CPU quota",
        "ok": False,
        "says": "0.5 CPUs asked for, the kernel applies none",
    }
    metrics = answering(machine)
    assert metrics['omni_server_cpu_quota_asked_cores{unit="qwen3-omni.service"}'] == 0.5
    assert 'omni_server_cpu_quota_cores{unit="qwen3-omni.service"}' not in metrics


def test_a_restart_goes_on_counting(machine: Machine) -> None:
    counted = frames(machine)
    assert counted > 0
    machine.run("systemctl", "restart", SIDECAR)
    assert frames(machine) >= counted
    pid = machine.show(SIDECAR, "MainPID")
    machine.run("systemctl", "reload", SIDECAR)
    assert machine.show(SIDECAR, "MainPID") == pid
    assert answering(machine)


def test_a_stopped_sidecar_is_ended_by_the_watchdog(machine: Machine) -> None:
    pid = machine.show(SIDECAR, "MainPID")
    again = int(machine.show(SIDECAR, "NRestarts"))
    machine.run("kill", "-STOP", pid)
    begun = time.monotonic()
    wait_until(lambda: machine.show(SIDECAR, "NRestarts") == str(again + 1), timeout=90, what="the watchdog")
    assert time.monotonic() - begun < 60
    assert machine.show(SIDECAR, "MainPID") != pid
    assert "watchdog" in machine.run("journalctl", "-u", SIDECAR, "-b", "--no-pager").stdout.lower()
    assert answering(machine)


def test_a_server_that_cannot_stay_up_ends_as_failed_and_the_sidecar_says_so(machine: Machine) -> None:
    put(machine, server.PATH, "#!/bin/sh\nexit 3\n", 0o755)
    try:
        machine.run("systemctl", "restart", SERVER, check=False)
        wait_until(
            lambda: machine.show(SERVER, "ActiveState") == "failed", timeout=90, what="systemd to give up"
        )
        found = answering(machine)
        assert found['omni_server_unit_state{state="failed",unit="qwen3-omni.service"}'] == 1
        assert found['omni_server_unit_restarts_total{unit="qwen3-omni.service"}'] >= 4
        assert found['omni_server_running{unit="qwen3-omni.service"}'] == 0
    finally:
        put(machine, server.PATH, server.PROGRAM, 0o755)
    machine.run("systemctl", "reset-failed", SERVER)
    machine.run("systemctl", "start", SERVER)
    wait_until(
        lambda: (
            answering(machine).get('omni_server_unit_state{state="active",unit="qwen3-omni.service"}') == 1
        ),
        what="the server to be back",
    )


def test_uninstalling_leaves_no_file_behind(machine: Machine, before: dict[str, str]) -> None:
    """The last test here: config and state first, then nothing at all."""
    machine.run("omniwatch", "uninstall")
    left = set(snapshot(machine.tree)) - set(before)
    assert "etc/omniwatch/omniwatch.yaml" in left
    assert all(
        name.startswith(("etc/omniwatch", "var/lib/omniwatch", "var/lib/qwen3-omni")) for name in left
    ), left
    machine.run("/srv/venv/bin/omniwatch", *server.INSTALL)
    assert answering(machine)
    machine.run("omniwatch", "uninstall", "--purge")
    assert machine.run("systemctl", "is-active", SIDECAR, check=False).stdout.strip() == "inactive"
    after = snapshot(machine.tree)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()
