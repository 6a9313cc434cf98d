"""Congestion control on a booted machine, in its own network namespace: what new connections get, before, after and at a start."""

from __future__ import annotations

import pytest

from suites.system.machine import Machine, put

VALUE = "/proc/sys/net/ipv4/tcp_congestion_control"
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
SYSCTL = "etc/sysctl.d/99-zz-omniwatch-congestion.conf"
NEW_CONNECTION = "import socket as s; print(s.socket().getsockopt(s.IPPROTO_TCP, s.TCP_CONGESTION, 16).decode().strip(chr(0)))"
TUNE = ("/srv/venv/bin/omniwatch", "tune", "--congestion")


@pytest.fixture(scope="module", autouse=True)
def loss_based(machine: Machine) -> None:
    """Reno: a namespace may have CUBIC only where the kernel was built with it as its default."""
    if "bbr" not in machine.run("cat", AVAILABLE).stdout.split():
        pytest.skip("this kernel has no BBR")
    set_running(machine, "reno")


def set_running(machine: Machine, value: str) -> None:
    machine.run("sh", "-c", f"echo {value} > {VALUE}")


def new_connection(machine: Machine) -> str:
    return machine.run("python3", "-c", NEW_CONNECTION).stdout.strip()


def test_a_new_connection_has_bbr_after_apply_and_at_a_start_and_no_more_after_revert(
    machine: Machine,
) -> None:
    before = new_connection(machine)
    assert before == "reno"
    assert machine.run(*TUNE, "--diff", check=False).returncode == 1
    assert new_connection(machine) == before
    applied = machine.run(*TUNE, "--apply", "--yes").stdout
    assert f"wrote /{SYSCTL}; the kernel took it" in applied
    assert new_connection(machine) == "bbr"
    set_running(machine, before)
    machine.run("systemctl", "restart", "systemd-sysctl.service")
    assert new_connection(machine) == "bbr", "as at a start"
    assert "nothing to change" in machine.run(*TUNE).stdout
    assert f"took back /{SYSCTL}" in machine.run(*TUNE, "--revert").stdout
    assert new_connection(machine) == before
    assert not (machine.tree / SYSCTL).exists()


def test_a_policy_of_another_file_does_not_undo_it_at_a_start(machine: Machine) -> None:
    put(machine, "etc/sysctl.d/99-sysctl.conf", "net.ipv4.tcp_congestion_control = reno\n")
    set_running(machine, "reno")
    machine.run(*TUNE, "--apply", "--yes")
    machine.run("systemctl", "restart", "systemd-sysctl.service")
    assert new_connection(machine) == "bbr"
    machine.run(*TUNE, "--revert")
    machine.run("systemctl", "restart", "systemd-sysctl.service")
    assert new_connection(machine) == "reno"
