"""Installation, operation and removal under a real systemd."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from helpers.runbooks import fenced, inline
from helpers.waiting import wait_until
from suites.system import server
from suites.system.machine import Machine, put, snapshot
from suites.system.operation import Operation, answering, frames

SIDECAR, SERVER = "omniwatch.service", server.UNIT


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    put(machine, server.PATH, server.PROGRAM, 0o755)
    return snapshot(machine.tree)


@pytest.fixture(scope="module", autouse=True)
def installed(machine: Machine, before: dict[str, str]) -> str:
    return machine.run("/srv/venv/bin/omniwatch", *server.INSTALL).stdout


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
        machine.run("stat", "-c", "%a %U %G", "/run/omniwatch").stdout.strip() == "2570 omniwatch omniwatch"
    )
    assert machine.run("stat", "-c", "%G", "/run/omniwatch/events.jsonl").stdout.strip() == "omniwatch"


def test_the_sidecar_keeps_samples_of_the_device_while_it_speaks(machine: Machine) -> None:
    path = "/run/omniwatch-device/device.jsonl"
    wait_until(lambda: machine.run("test", "-s", path, check=False).returncode == 0, what="a sample")
    assert (
        machine.run("stat", "-c", "%a %U %G", "/run/omniwatch-device").stdout.strip()
        == "750 omniwatch omniwatch"
    )
    assert json.loads(machine.run("head", "-1", path).stdout)["speaking"] >= 1
    assert "the device was not sampled" not in machine.run("journalctl", "--unit", SIDECAR).stdout


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
        "seen": True,
    }
    metrics = answering(machine)
    assert metrics['omni_server_cpu_quota_asked_cores{unit="qwen3-omni.service"}'] == 0.5
    assert 'omni_server_cpu_quota_cores{unit="qwen3-omni.service"}' not in metrics


def typed() -> list[str]:
    """Return the commands of `omniwatch` that runbooks name, made ready to be run here.

    Those that set a quota are run where the machine has one (test_throttled).
    """
    words = [words for command in fenced() + inline() for words in command.programs()]
    lines = {shlex.join(found) for found in words if found[0] == "omniwatch" and "--apply" not in found}
    return sorted(
        re.sub(r"--seconds \d+", "--seconds 5", re.sub(r"--out$", "--out /run/bundle", line)).replace(
            "NAME", "int4"
        )
        for line in lines
    )


@pytest.mark.parametrize("command", typed())
def test_each_command_of_a_runbook_runs_by_the_installed_program(machine: Machine, command: str) -> None:
    """It may find a fault, or lack what this machine does not have; it says so in words of its own."""
    done = machine.run("sh", "-c", f"cd /run && {command} < /dev/null", check=False)
    assert done.returncode in (0, 1, 2)
    # What is printed on standard output may be a runbook, which quotes such words.
    assert not re.search("Traceback|No such command|command of the desk|pip install", done.stderr)


class TestOperation(Operation):
    """Of what pip brought."""


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
    machine.run("omniwatch", "uninstall", "--purge", "--yes")
    assert machine.run("systemctl", "is-active", SIDECAR, check=False).stdout.strip() == "inactive"
    after = snapshot(machine.tree)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()
