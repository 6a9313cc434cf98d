"""The Debian packages on a real system: installed, running, beside a model server's unit, and purged without a trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.paths import CLONE
from helpers.waiting import wait_until
from omniwatch.bundle.program_files import is_for_desk
from suites.system import server
from suites.system.machine import Machine, put, run, snapshot
from suites.system.operation import Operation

SIDECAR = "omniwatch.service"


class Pair(NamedTuple):
    """The packages of one architecture."""

    device: Path
    desk: Path


@pytest.fixture(scope="module")
def packages() -> dict[str, Pair]:
    """Both packages by architecture, built anew."""
    run("env", f"BIN={Path(sys.prefix, 'bin')}", "deploy/packaging/build.sh", cwd=CLONE)

    def newest(name: str) -> Path:
        return max((CLONE / "dist").glob(name), key=os.path.getmtime)

    return {
        arch: Pair(newest(f"omniwatch_*_{arch}.deb"), newest(f"omniwatch-desk_*_{arch}.deb"))
        for arch in ("amd64", "arm64")
    }


@pytest.fixture(scope="module")
def pair(packages: dict[str, Pair]) -> Pair:
    """This machine's."""
    return packages[run("dpkg", "--print-architecture").strip()]


@pytest.fixture(scope="module")
def package(pair: Pair) -> Path:
    return pair.device


@pytest.fixture(scope="module")
def single(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One package of an older version that holds what the two of today hold."""
    tree = tmp_path_factory.mktemp("single")
    run("dpkg-deb", "-x", str(pair.desk), str(tree))
    run("dpkg-deb", "-x", str(pair.device), str(tree))
    run("dpkg-deb", "-e", str(pair.device), str(tree / "DEBIAN"))
    control = tree / "DEBIAN/control"
    version = run("dpkg-deb", "-f", str(pair.device), "Version").strip()
    control.write_text(control.read_text().replace(f"Version: {version}\n", "Version: 0.0.9\n"))
    (tree / "DEBIAN/md5sums").unlink()
    package = tree.parent / "omniwatch_0.0.9.deb"
    run("dpkg-deb", "--root-owner-group", "-b", str(tree), str(package))
    return package


@pytest.mark.parametrize(("arch", "elf_machine"), [("amd64", 62), ("arm64", 183)])
def test_compiled_modules_are_of_the_architecture_and_for_every_python(
    packages: dict[str, Pair], tmp_path: Path, arch: str, elf_machine: int
) -> None:
    for package in packages[arch]:
        run("dpkg-deb", "-x", str(package), str(tmp_path))
    modules = list(tmp_path.rglob("*.so"))
    assert {int.from_bytes(path.read_bytes()[18:20], "little") for path in modules} == {elf_machine}
    named = {path.name for path in modules}
    for python in ("310", "311", "312", "313"):
        assert len([name for name in named if f"cpython-{python}-" in name]) >= 4, (
            "msgspec, PyYAML, MarkupSafe, promql-parser"
        )


def test_no_file_is_in_both_and_the_devices_has_nothing_of_the_desk(pair: Pair) -> None:
    device, desk = (
        {line.split()[-1] for line in run("dpkg-deb", "-c", str(package)).splitlines() if line[0] != "d"}
        for package in pair
    )
    assert not device & desk
    site = "./opt/omniwatch/site/"
    of_desk = [
        name
        for name in device
        if is_for_desk(name.removeprefix(site)) or name.startswith(f"{site}promql_parser")
    ]
    assert of_desk == []
    # A package knows no settings when it is made: the centre's part is in every device's.
    assert f"{site}omniwatch/centre/cli/status.py" in device
    assert {f"{site}omniwatch/desk/cli/plan/__init__.py", f"{site}omniwatch/client/__init__.py"} <= desk


@pytest.fixture(scope="module")
def before(machine: Machine, pair: Pair, single: Path) -> dict[str, str]:
    for package in (*pair, single):
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


def test_the_second_package_adds_the_desk_and_takes_it_away(machine: Machine, pair: Pair) -> None:
    there = snapshot(machine.tree)
    refused = machine.run("omniwatch", "plan", check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "install the Debian package omniwatch-desk" in refused.stderr
    machine.run("dpkg", "-i", f"/srv/{pair.desk.name}")
    assert "At a desk:" in machine.run("omniwatch", "--help").stdout
    assert "code2wav" in machine.run("omniwatch", "plan", "--profile", "orin-int4").stdout
    machine.run("omniwatch", "bench", "chain", "--help")
    said = machine.run(
        "/opt/omniwatch/venv/bin/python", "-I", "-c", "import omniwatch.client, omniwatch.desk.chain.session"
    )
    assert said.stderr == ""
    refused = machine.run("dpkg", "-r", "omniwatch", check=False)
    assert refused.returncode != 0
    assert machine.show(SIDECAR, "ActiveState") == "active"
    machine.run("dpkg", "-r", "omniwatch-desk")
    assert {name for name in changed(there, machine) if not name.startswith("var/lib/")} == set()
    assert machine.show(SIDECAR, "ActiveState") == "active"


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


@pytest.mark.parametrize("first", ["omniwatch", "omniwatch-desk"])
def test_the_single_package_of_before_becomes_two_which_go_in_either_order(
    machine: Machine, before: dict[str, str], pair: Pair, single: Path, first: str
) -> None:
    machine.run("dpkg", "-i", f"/srv/{single.name}")
    apt = ("apt-get", "-o", "APT::Sandbox::User=root", "--no-install-recommends", "--yes")
    machine.run(*apt, "install", *(f"/srv/{package.name}" for package in pair))
    plan = "/opt/omniwatch/site/omniwatch/desk/cli/plan/__init__.py"
    assert machine.run("dpkg", "-S", plan).stdout == f"omniwatch-desk: {plan}\n"
    assert machine.show(SIDECAR, "ActiveState") == "active"
    assert "code2wav" in machine.run("omniwatch", "plan", "--profile", "orin-int4").stdout
    second = "omniwatch" if first == "omniwatch-desk" else "omniwatch-desk"
    for name in (first, second):
        machine.run("dpkg", "--force-depends", "-r", name)
    machine.run("dpkg", "-P", "omniwatch", "omniwatch-desk")
    assert changed(before, machine) - {"var/lib/qwen3-omni"} == set()
