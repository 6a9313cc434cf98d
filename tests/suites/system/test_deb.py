"""The Debian package on a real system: installed, running, beside a model server's unit, and purged without a trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.waiting import wait_until
from suites.system import server
from suites.system.machine import Machine, put, run, snapshot
from suites.system.operation import Operation

SIDECAR = "omniwatch.service"


@pytest.fixture(scope="module")
def packages() -> dict[str, Path]:
    """Both packages by architecture, built anew."""
    run("env", f"BIN={Path(sys.prefix, 'bin')}", "deploy/packaging/build.sh", cwd=CLONE)
    return {
        arch: max((CLONE / "dist").glob(f"omniwatch_*_{arch}.deb"), key=os.path.getmtime)
        for arch in ("amd64", "arm64")
    }


@pytest.fixture(scope="module")
def package(packages: dict[str, Path]) -> Path:
    """This machine's."""
    return packages[run("dpkg", "--print-architecture").strip()]


@pytest.mark.parametrize(("arch", "elf_machine"), [("amd64", 62), ("arm64", 183)])
def test_compiled_modules_are_of_the_architecture_and_for_every_python(
    packages: dict[str, Path], tmp_path: Path, arch: str, elf_machine: int
) -> None:
    run("dpkg-deb", "-x", str(packages[arch]), str(tmp_path))
    modules = list(tmp_path.rglob("*.so"))
    assert {int.from_bytes(path.read_bytes()[18:20], "little") for path in modules} == {elf_machine}
    named = {path.name for path in modules}
    for python in ("310", "311", "312", "313"):
        assert len([name for name in named if f"cpython-{python}-" in name]) >= 3, (
            "msgspec, PyYAML, MarkupSafe"
        )


@pytest.fixture(scope="module")
def before(machine: Machine, package: Path) -> dict[str, str]:
    (machine.tree / "srv" / package.name).write_bytes(package.read_bytes())
    put(machine, server.PATH, server.PROGRAM, 0o755)
    return snapshot(machine.tree)


def changed(before: dict[str, str], machine: Machine) -> set[str]:
    after = snapshot(machine.tree)
    found = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # dpkg keeps its own books.
    return {name for name in found if not name.startswith("var/lib/dpkg")}


def test_the_package_starts_the_sidecar(machine: Machine, package: Path, before: dict[str, str]) -> None:
    machine.run("dpkg", "-i", f"/srv/{package.name}")
    assert machine.show(SIDECAR, "ActiveState") == "active"
    found = wait_until(machine.metrics, timeout=30, what="the sidecar to answer")
    assert found["omniwatch_systemd_up"] == 1
    assert "installed as a package" in machine.run("omniwatch", "status", check=False).stdout
    assert machine.run("omniwatch", "--version").stdout.startswith("omniwatch, version ")


def test_the_model_servers_unit_is_added_to_it(machine: Machine) -> None:
    machine.run("omniwatch", *server.INSTALL)
    wait_until(
        lambda: machine.metrics().get(f'omni_server_running{{unit="{server.UNIT}"}}') == 1,
        what="the server to run",
    )
    refused = machine.run("omniwatch", "install", check=False)
    assert refused.returncode == 2
    assert "the package omniwatch has installed the sidecar" in refused.stderr


class TestOperation(Operation):
    """Of what the package brought."""


def test_a_changed_config_survives_an_upgrade(machine: Machine, package: Path) -> None:
    config = "etc/omniwatch/omniwatch.yaml"
    put(machine, config, "site:\n  exporter: 127.0.0.1:9847\n")
    pid = machine.show(SIDECAR, "MainPID")
    machine.run("dpkg", "-i", "--force-confold", f"/srv/{package.name}")
    assert (machine.tree / config).read_text() == "site:\n  exporter: 127.0.0.1:9847\n"
    assert machine.show(SIDECAR, "MainPID") != pid, "the new version runs"
    assert wait_until(lambda: machine.metrics("http://127.0.0.1:9847/metrics"), timeout=30)


def test_a_package_that_comes_back_after_a_removal_starts_the_sidecar(
    machine: Machine, package: Path
) -> None:
    machine.run("dpkg", "-r", "omniwatch")
    assert machine.run("systemctl", "is-enabled", SIDECAR, check=False).returncode != 0
    machine.run("dpkg", "-i", "--force-confold", f"/srv/{package.name}")
    assert machine.show(SIDECAR, "ActiveState") == "active"
    assert machine.run("systemctl", "is-enabled", SIDECAR).stdout.strip() == "enabled"


def test_removing_and_purging_leave_no_file_behind(machine: Machine, before: dict[str, str]) -> None:
    machine.run("dpkg", "-r", "omniwatch")
    left = changed(before, machine)
    kept = (
        "etc/omniwatch",
        "var/lib/omniwatch",
        "var/lib/qwen3-omni",
        "etc/passwd",
        "etc/group",
        "etc/shadow",
        "etc/gshadow",
    )
    assert "etc/omniwatch/omniwatch.yaml" in left
    assert {name for name in left if not name.startswith(kept)} == set()
    machine.run("dpkg", "-P", "omniwatch")
    assert changed(before, machine) - {"var/lib/qwen3-omni"} == set(), "but the model server's own state"
