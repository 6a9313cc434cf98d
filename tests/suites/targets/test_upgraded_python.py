"""A Python that apt replaces under a sidecar: Ubuntu 22.04 came with 3.10.4, and its updates bring a newer one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.waiting import wait_until
from suites.system.machine import Machine, booted, copy_of, inside
from suites.system.operation import SIDECAR, answering
from suites.targets import distributions

OLDEST = r"""
packages=$(dpkg-query -W -f '${Package} ${source:Package}\n' | sed -nE 's/ python3(.10|-defaults|-stdlib-extensions)$//p')
of_the_release() { apt-cache madison "$1" | sed -n 's/.*| *\([^ ]*\) *|.* jammy\/.*/\1/p' | head -1; }
apt-get -q update
mkdir /srv/newer && cd /srv/newer && apt-get -q download $packages
apt-get -q -y --allow-downgrades install $(for one in $packages; do echo "$one=$(of_the_release $one)"; done)
"""
EVENTS = "/run/omniwatch/events.jsonl"
PAGES = ("/metrics", "/", "/streams.json", "/live.json", "/turns.json", "/runbooks/CodecDrift", "/-/config")


@pytest.fixture(scope="module")
def machine(wheel: Path) -> Iterator[Machine]:
    """A booted machine with the oldest Python, this clone in /srv/venv, and the newer Python's packages in /srv/newer."""
    try:
        bare = distributions.device_tree(distributions.JAMMY)
    except distributions.NotReachedError as error:
        pytest.skip(f"not run: the archive of {distributions.JAMMY.name} is not reached: {error}")
    with copy_of(bare, f"{bare.name}-python") as tree:
        inside(tree, "sh", "-ec", OLDEST, network=True)
        (tree / "srv" / wheel.name).write_bytes(wheel.read_bytes())
        inside(tree, "/srv/venv/bin/pip", "install", "-q", "--no-deps", "--no-index", f"/srv/{wheel.name}")
        with booted(tree) as running:
            yield running


def version(machine: Machine) -> tuple[int, ...]:
    said = machine.run("python3", "--version").stdout
    return tuple(map(int, re.findall(r"\d+", said)))


def heard(machine: Machine) -> float:
    return sum(
        value for name, value in answering(machine).items() if name.startswith("omniwatch_events_total")
    )


def speak(machine: Machine, scenario: str) -> None:
    """Have the sidecar read a whole recording."""
    before = heard(machine)
    simulate = f"/srv/venv/bin/omniwatch simulate --scenario {scenario} --speed max"
    machine.run("sh", "-c", f"{simulate} > /srv/made && cat /srv/made >> {EVENTS}")
    lines = int(machine.run("sh", "-c", "wc -l < /srv/made").stdout)
    wait_until(lambda: heard(machine) == before + lines, timeout=60, what="every event")


def test_a_python_upgraded_in_its_place_leaves_the_sidecar_working(machine: Machine) -> None:
    machine.run("/srv/venv/bin/omniwatch", "install")
    assert version(machine) == (3, 10, 4)
    speak(machine, "reconnect-jump")
    pid = machine.show(SIDECAR, "MainPID")

    machine.run("sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get -q -y install /srv/newer/*.deb")
    assert version(machine) > (3, 10, 4)
    assert machine.show(SIDECAR, "MainPID") == pid
    well(machine)
    speak(machine, "overload")
    machine.run("systemctl", "reload", SIDECAR)
    well(machine)
    assert machine.show(SIDECAR, "MainPID") == pid

    counted = heard(machine)
    machine.run("systemctl", "restart", SIDECAR)
    well(machine)
    assert heard(machine) == counted
    speak(machine, "reconnect-jump")
    assert machine.run("omniwatch", "install").stdout == "nothing to change\n"


def well(machine: Machine) -> None:
    """Hold that the sidecar serves every kind of page, and that status finds no fault."""
    answering(machine)
    for page in PAGES:
        fetch = f"import urllib.request as u; u.urlopen('http://127.0.0.1:9842{page}', timeout=10).read()"
        machine.run("python3", "-c", fetch)
    machine.run("omniwatch", "status")
