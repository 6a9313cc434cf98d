"""The Ansible role, run on a booted machine itself: install, change, refuse, upgrade and remove."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.paths import CLONE
from helpers.waiting import wait_until
from omniwatch import __version__
from suites.release import installation, state
from suites.release.clones import Released
from suites.release.conftest import NEWER, Newer
from suites.system.machine import Machine, base, booted, copy_of, inside, snapshot

SIDECAR = "omniwatch.service"
CONFIG, STATE = "etc/omniwatch/omniwatch.yaml", "var/lib/omniwatch"
BUNDLE = "/etc/omniwatch/bundle"
RULES = f"{BUNDLE[1:]}/alerts/streaming.rules.yaml"


class Controller:
    """Runs the role on the machine, from the machine."""

    def __init__(self, machine: Machine, programs: Path) -> None:
        self.machine = machine
        self.programs = programs

    def play(self, *flags: str, fails: bool = False, **variables: Any) -> str:
        """Run the playbook; return what it printed."""
        given = {
            "ansible_become": False,
            "ansible_python_interpreter": "/usr/bin/python3",
            **{f"omniwatch_{name}": value for name, value in variables.items()},
        }
        command = ["--connection=local", "--inventory=localhost,", "--extra-vars", json.dumps(given)]
        done = self.machine.run(
            str(self.programs / "ansible-playbook"), *command, *flags, "/srv/ansible/site.yml", check=False
        )
        assert (done.returncode != 0) is fails, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout


def changed(printed: str) -> list[str]:
    """The tasks and handlers that changed something, or would."""
    found = []
    task = ""
    for line in printed.splitlines():
        if named := re.match(r"(?:TASK|RUNNING HANDLER) \[(?:omniwatch : )?(.+)\] \*", line):
            task = named[1]
        if line.startswith("changed: "):
            found.append(task)
    return found


def settings(**alerts: float) -> dict[str, Any]:
    return {"site": {"device": "orin-7"}, "alerts": {"drift_page_ms": 60, **alerts}}


@pytest.fixture(scope="module")
def machine(released: Released, newer: Newer) -> Iterator[Machine]:
    """A booted machine with Ansible, the role and what it installs."""
    programs = installation.install(installation.directory())
    with copy_of(base(), "role") as tree:
        # Ubuntu and most installations of Debian have it.
        inside(tree, "apt-get", "-o", "APT::Sandbox::User=root", "-qq", "update", network=True)
        inside(
            tree, "apt-get", "-o", "APT::Sandbox::User=root", "-qq", "--yes", "--no-install-recommends",
            "install", "python3-apt", network=True,
        )  # fmt: skip
        shutil.copytree(programs.parent, tree / programs.parent.relative_to("/"), symlinks=True)
        shutil.copytree(CLONE / "deploy/ansible", tree / "srv/ansible")
        for file in (released.file("omniwatch_*_amd64.deb"), released.file("*.whl"), newer.deb):
            shutil.copy(file, tree / "srv" / file.name)
        with booted(tree) as running:
            yield running


@pytest.fixture(scope="module")
def controller(machine: Machine) -> Controller:
    return Controller(machine, installation.directory() / "venv/bin")


@pytest.fixture(scope="module")
def deb(released: Released) -> str:
    return f"/srv/{released.file('omniwatch_*_amd64.deb').name}"


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    return snapshot(machine.tree)


def different(before: dict[str, str], machine: Machine) -> set[str]:
    after = snapshot(machine.tree)
    found = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {name for name in found if not name.startswith("var/lib/dpkg")}


def test_a_first_run_with_check_changes_nothing(
    controller: Controller, machine: Machine, before: dict[str, str], deb: str
) -> None:
    said = controller.play("--check", "--diff", deb=deb, settings=settings(), bundle_dir=BUNDLE)
    assert {"Write the settings", "Install the package"} <= set(changed(said))
    assert "+  device: orin-7\n" in said
    assert different(before, machine) == set()


def test_it_installs_and_a_second_run_changes_nothing(
    controller: Controller, machine: Machine, deb: str
) -> None:
    said = controller.play(deb=deb, settings=settings(), bundle_dir=BUNDLE)
    assert {"Write the settings", "Install the package", "Render the bundle"} <= set(changed(said))
    assert wait_until(machine.metrics, timeout=30, what="the sidecar to answer")
    assert yaml.safe_load((machine.tree / CONFIG).read_text()) == settings()
    assert machine.show(SIDECAR, "UnitFileState") == "enabled"
    there = snapshot(machine.tree)
    pid = machine.show(SIDECAR, "MainPID")
    again = controller.play(deb=deb, settings=settings(), bundle_dir=BUNDLE)
    assert changed(again) == []
    assert different(there, machine) == set()
    assert machine.show(SIDECAR, "MainPID") == pid
    assert list((machine.tree / "tmp").glob("*.omniwatch")) == []


def test_check_and_diff_say_exactly_what_a_run_then_does(
    controller: Controller, machine: Machine, deb: str
) -> None:
    there = snapshot(machine.tree)
    given = {"deb": deb, "settings": settings(drift_page_ms=75), "bundle_dir": BUNDLE}
    said = controller.play("--check", "--diff", **given)
    assert changed(said) == ["Write the settings", "Render the bundle", "Reload omniwatch"]
    lines = [line for line in said.splitlines() if re.match(r"[-+] ", line)]
    assert lines == ["-  drift_page_ms: 60", "+  drift_page_ms: 75"]
    assert re.search(r"\+.*abs\(omni_codec_drift_ms\) > 75", said)
    assert different(there, machine) == set()
    pid = machine.show(SIDECAR, "MainPID")
    assert changed(controller.play(**given)) == changed(said)
    assert "omni_codec_drift_ms) > 75" in (machine.tree / RULES).read_text()
    assert machine.show(SIDECAR, "MainPID") == pid, "it reloads and does not restart"
    assert changed(controller.play(**given)) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"alerts": {"drift_page_ms": "sixty"}}, "alerts.drift_page_ms"),
        ({"alerts": {"drift_pages_ms": 60}}, "drift_pages_ms"),
        ({"receivers": {"page_robots": ["nobody"]}}, "receivers"),
    ],
)
def test_a_setting_that_does_not_hold_changes_nothing(
    controller: Controller, machine: Machine, newer: Newer, wrong: dict[str, Any], said: str
) -> None:
    """Nor is the newer version installed that comes with it."""
    there = snapshot(machine.tree)
    pid = machine.show(SIDECAR, "MainPID")
    for flags in ([], ["--check"]):
        printed = controller.play(
            *flags, fails=True, deb=f"/srv/{newer.deb.name}", settings=wrong, bundle_dir=BUNDLE
        )
        assert changed(printed) == []
        assert said in printed
    assert different(there, machine) == set()
    assert machine.show(SIDECAR, "MainPID") == pid
    assert machine.metrics()


def test_settings_that_reach_nobody_are_refused_where_that_is_asked_for(
    controller: Controller, machine: Machine, deb: str
) -> None:
    there = snapshot(machine.tree)
    printed = controller.play(fails=True, deb=deb, settings=settings(), check_delivery=True)
    assert changed(printed) == []
    assert "FAILED" in printed
    assert different(there, machine) == set()


def test_a_newer_version_comes_and_goes_with_settings_and_counters(
    controller: Controller, machine: Machine, deb: str, newer: Newer
) -> None:
    given = {"settings": settings(drift_page_ms=75), "bundle_dir": BUNDLE}
    config = (machine.tree / CONFIG).read_text()
    spool = state.events()
    (machine.tree / "srv/events.jsonl").write_bytes(spool)
    machine.run("cp", "/srv/events.jsonl", "/run/omniwatch/events.jsonl")
    machine.run("rm", "/srv/events.jsonl")
    before = wait_until(
        lambda: state.counted(machine.metrics(), spool), timeout=60, what="the spool to be read"
    )
    machine.run("systemctl", "stop", SIDECAR)
    state.put_history(machine.tree / STATE)
    machine.run("cp", "/dev/null", "/run/omniwatch/events.jsonl")
    machine.run("systemctl", "start", SIDECAR)
    for package, number in ((f"/srv/{newer.deb.name}", NEWER), (deb, __version__)):
        said = controller.play(deb=package, **given)
        assert "Install the package" in changed(said)
        assert machine.run("omniwatch", "--version").stdout == f"omniwatch, version {number}\n"
        found = wait_until(machine.metrics, timeout=30, what="the sidecar to answer")
        assert state.counters(found) == before
        assert state.has_history(machine.feed())
        assert (machine.tree / CONFIG).read_text() == config
        assert changed(controller.play(deb=package, **given)) == []


def test_state_of_a_later_format_is_said_and_started_over(
    controller: Controller, machine: Machine, deb: str
) -> None:
    """The role starts a sidecar that was stopped."""
    machine.run("systemctl", "stop", SIDECAR)
    state.make_later(machine.tree / STATE)
    said = controller.play(deb=deb, settings=settings(drift_page_ms=75), bundle_dir=BUNDLE)
    assert changed(said) == ["Run the sidecar"]
    found = wait_until(machine.metrics, timeout=30, what="the sidecar to answer")
    assert set(state.counters(found).values()) == {0}
    assert not state.has_history(machine.feed())
    assert state.refused(machine.run("journalctl", "--no-pager", f"--unit={SIDECAR}").stdout)


def test_absent_leaves_what_a_purge_leaves(
    controller: Controller, machine: Machine, before: dict[str, str]
) -> None:
    would = changed(controller.play("--check", state="absent", bundle_dir=BUNDLE))
    assert "Purge the packages" in would
    controller.play(state="absent", bundle_dir=BUNDLE)
    assert different(before, machine) == set()
    assert changed(controller.play(state="absent", bundle_dir=BUNDLE)) == []


def test_a_wheel_comes_changes_and_goes_as_the_package_does(
    controller: Controller, machine: Machine, before: dict[str, str], released: Released
) -> None:
    wheel = released.file("*.whl")
    needed = machine.tree / "srv/wheels"
    python = machine.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    fetch = [
        sys.executable,
        str(CLONE / "deploy/packaging/fetch.py"),
        "amd64",
        python,
        str(wheel),
        str(needed),
    ]
    subprocess.run(fetch, check=True)
    there = different(before, machine)
    given = {
        "wheel": f"/srv/{wheel.name}",
        "pip_arguments": "--no-index --find-links=/srv/wheels",
        "bundle_dir": BUNDLE,
    }
    controller.play("--check", **given, settings=settings())
    assert different(before, machine) == there
    controller.play(**given, settings=settings())
    assert wait_until(machine.metrics, timeout=30, what="the sidecar to answer")
    assert yaml.safe_load((machine.tree / CONFIG).read_text()) == settings()
    assert changed(controller.play(**given, settings=settings())) == []
    said = controller.play("--check", "--diff", **given, settings=settings(drift_page_ms=75))
    assert changed(said) == ["Write the settings", "Render the bundle", "Reload omniwatch"]
    wrong = controller.play(fails=True, **given, settings={"alerts": {"drift_pages_ms": 60}})
    assert (changed(wrong), "drift_pages_ms" in wrong) == ([], True)
    assert machine.metrics()
    controller.play(state="absent", bundle_dir=BUNDLE)
    assert different(before, machine) == there


def test_package_and_wheel_exclude_each_other(controller: Controller, deb: str) -> None:
    assert "Set omniwatch_deb or omniwatch_wheel, one of them." in controller.play(fails=True)
    controller.play(fails=True, deb=deb, wheel="/srv/x.whl")
    assert "value of omniwatch_state must be one of" in controller.play(fails=True, state="gone").replace(
        "\n", " "
    )


def test_the_role_is_clean_by_its_lint(tmp_path: Path) -> None:
    programs = installation.install(installation.directory())
    shutil.copytree(CLONE / "deploy/ansible", tmp_path / "ansible")
    done = subprocess.run(
        [str(programs / "ansible-lint"), "--offline", "--strict", "--profile=production", "--nocolor"],
        cwd=tmp_path / "ansible",
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed." in done.stderr
