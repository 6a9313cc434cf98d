"""How the units behave once they run, however they were installed."""

from __future__ import annotations

import time

from helpers.waiting import wait_until
from suites.system import server
from suites.system.machine import Machine, put

SIDECAR, SERVER = "omniwatch.service", server.UNIT


def frames(machine: Machine) -> float:
    return sum(
        value
        for name, value in answering(machine).items()
        if name.startswith("omniwatch_events_total") and 'ev="audio"' in name
    )


def answering(machine: Machine) -> dict[str, float]:
    return wait_until(machine.metrics, timeout=30, what="the sidecar to answer")


class Operation:
    """Tests for a module whose `machine` has the sidecar and the model server installed and running."""

    def test_a_restart_goes_on_counting(self, machine: Machine) -> None:
        counted = wait_until(lambda: frames(machine), timeout=60, what="speech")
        machine.run("systemctl", "restart", SIDECAR)
        assert frames(machine) >= counted
        pid = machine.show(SIDECAR, "MainPID")
        machine.run("systemctl", "reload", SIDECAR)
        assert machine.show(SIDECAR, "MainPID") == pid
        assert answering(machine)

    def test_a_stopped_sidecar_is_ended_by_the_watchdog(self, machine: Machine) -> None:
        pid = machine.show(SIDECAR, "MainPID")
        assert int(pid) > 0, "it runs: process 0 would be this very group"
        again = int(machine.show(SIDECAR, "NRestarts"))
        machine.run("sh", "-c", f"kill -STOP {pid}")
        begun = time.monotonic()
        wait_until(
            lambda: machine.show(SIDECAR, "NRestarts") == str(again + 1), timeout=90, what="the watchdog"
        )
        assert time.monotonic() - begun < 60
        assert machine.show(SIDECAR, "MainPID") != pid
        assert "watchdog" in machine.run("journalctl", "-u", SIDECAR, "-b", "--no-pager").stdout.lower()
        assert answering(machine)

    def test_a_server_that_cannot_stay_up_ends_as_failed_and_the_sidecar_says_so(
        self, machine: Machine
    ) -> None:
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
                answering(machine).get('omni_server_unit_state{state="active",unit="qwen3-omni.service"}')
                == 1
            ),
            what="the server to be back",
        )
