"""CPU limits as a real systemd hands them to the kernel, and `omniwatch tune` changing them under a running server."""

from __future__ import annotations

import glob
import json
import re
from pathlib import Path

import pytest

from helpers.waiting import wait_until
from suites.system import server
from suites.system.machine import Machine, put

UNIT = f'{{unit="{server.UNIT}"}}'
DROPIN = f"etc/systemd/system/{server.UNIT}.d/50-cpu.conf"


@pytest.fixture(scope="module", autouse=True)
def throttled(machine: Machine) -> None:
    """The published unit with its CPUQuota=50%, and a server that wants more than that."""
    machine.give_cpu_controller()
    put(machine, server.PATH, server.PROGRAM, 0o755)
    put(machine, f"etc/systemd/system/{server.UNIT}.d/10-busy.conf", "[Service]\nEnvironment=BUSY_MS=1000\n")
    machine.run("/srv/venv/bin/omniwatch", *server.INSTALL)
    wait_until(lambda: machine.metrics().get(f"omni_server_running{UNIT}"), what="the server to be seen")


def seen(machine: Machine, name: str) -> float | None:
    return machine.metrics().get(f"omni_server_cpu_{name}{UNIT}")


def kernel(machine: Machine, name: str, unit: str = server.UNIT) -> str:
    return (machine.own_group("cpu") / "system.slice" / unit / name).read_text().strip()


def test_the_published_quota_throttles_the_server(machine: Machine) -> None:
    assert kernel(machine, "cpu.cfs_quota_us") == "50000"
    assert seen(machine, "quota_cores") == seen(machine, "quota_asked_cores") == 0.5
    begun = seen(machine, "throttled_periods_total")
    assert begun is not None
    wait_until(
        lambda: (seen(machine, "throttled_periods_total") or 0) > begun + 5, what="throttling to be seen"
    )
    status = machine.run("omniwatch", "status", check=False).stdout
    assert "0.5 CPUs; `omniwatch tune` says what that does to the voice" in status


def test_the_sidecar_has_bounds_of_its_own(machine: Machine) -> None:
    assert kernel(machine, "cpu.cfs_quota_us", "omniwatch.service") == "20000"
    assert int(kernel(machine, "cpu.shares", "omniwatch.service")) == pytest.approx(0.2 * 1024, abs=1)


def test_a_weight_is_a_share_in_cgroup_version_1(machine: Machine) -> None:
    assert kernel(machine, "cpu.shares") == str(9 * 1024)
    assert seen(machine, "weight") == 900


def test_tune_frees_the_running_server_and_takes_it_back(machine: Machine) -> None:
    pid = machine.show(server.UNIT, "MainPID")
    told = json.loads(machine.run("omniwatch", "tune", "--seconds", "3", "--json").stdout)
    assert told["now"]["will_drift"] is True
    assert told["throttled_periods"] > 0
    applied = machine.run("omniwatch", "tune", "--seconds", "2", "--apply", "--yes").stdout
    assert "+CPUQuota=" in applied
    assert "the kernel took it" in applied
    assert kernel(machine, "cpu.cfs_quota_us") == "-1"
    assert seen(machine, "quota_cores") is None
    reverted = machine.run("omniwatch", "tune", "--revert").stdout
    assert f"took back /{DROPIN}" in reverted
    assert not (machine.tree / DROPIN).exists()
    wait_until(lambda: kernel(machine, "cpu.cfs_quota_us") == "50000", what="the published quota to be back")
    assert machine.show(server.UNIT, "MainPID") == pid, "the server was not restarted for any of this"


def test_a_cap_gets_a_burst_that_outlasts_a_reload_and_a_restart(machine: Machine) -> None:
    applied = machine.run("omniwatch", "tune", "--seconds", "2", "--cap", "1.5", "--apply", "--yes").stdout
    assert "the kernel took it" in applied

    def limits() -> tuple[str, ...]:
        return tuple(kernel(machine, f"cpu.cfs_{name}_us") for name in ("quota", "period", "burst"))

    assert limits() == ("150000", "100000", "150000")
    machine.run("systemctl", "daemon-reload")
    assert limits() == ("150000", "100000", "150000")
    machine.run("systemctl", "restart", server.UNIT)
    wait_until(lambda: limits() == ("150000", "100000", "150000"), what="the burst to be set again")
    machine.run("omniwatch", "tune", "--revert")
    wait_until(lambda: limits() == ("50000", "100000", "0"), what="the published quota to be back")


@pytest.mark.parametrize("unit", [r"omni\x2dvoice.service", r"omni\x2dvoice@a\x2db.service"])
def test_the_burst_of_a_unit_with_an_escaped_name_reaches_its_own_group(machine: Machine, unit: str) -> None:
    file = re.sub("@.*", "@.service", unit)
    put(machine, f"etc/systemd/system/{file}", "[Service]\nExecStart=/bin/sleep infinity\nCPUQuota=50%\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", unit)
    tune = ["omniwatch", "tune", "--unit", unit]
    try:
        machine.run(*tune, "--seconds", "1", "--cap", "1.5", "--apply", "--yes")
        machine.run("systemctl", "restart", unit)
        (group,) = machine.own_group("cpu").glob(f"system.slice/**/{glob.escape(unit)}")
        assert (group / "cpu.cfs_quota_us").read_text().strip() == "150000"
        assert (group / "cpu.cfs_burst_us").read_text().strip() == "150000"
    finally:
        machine.run(*tune, "--revert")
        machine.run("systemctl", "stop", unit)
        Path(machine.tree, "etc/systemd/system", file).unlink()
        machine.run("systemctl", "daemon-reload")


def test_a_quota_that_another_drop_in_overrides_is_reported(machine: Machine) -> None:
    other = f"etc/systemd/system/{server.UNIT}.d/90-policy.conf"
    put(machine, other, "[Service]\nCPUQuota=80%\n")
    applied = machine.run("omniwatch", "tune", "--seconds", "2", "--apply", "--yes", check=False)
    assert applied.returncode == 1
    assert f"{server.UNIT}: the kernel has a quota of 0.8 CPUs, not no quota" in applied.stderr
    Path(machine.tree, other).unlink()
    machine.run("omniwatch", "tune", "--revert")
