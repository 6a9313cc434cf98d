"""The two commands of the README on a machine that has nothing but make, Python and git: a bare Debian tree, this clone in it."""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.runbooks import fenced
from suites.system.machine import PIP_BINDS, ROOTS, codename, copy_of, inside, mirror, run

PACKAGES = "make,python3,ca-certificates,git"
CLONED = "/srv/omniwatch"


@pytest.fixture
def tree(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A fresh copy of the bare tree, with this clone in it."""
    bare = ROOTS / f"{codename()}-bare-{zlib.crc32(PACKAGES.encode()):08x}"
    if not bare.is_dir():
        unfinished = bare.with_name(f".{bare.name}.{os.getpid()}")
        run(
            "debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), str(unfinished), mirror()
        )
        unfinished.rename(bare)
    with copy_of(bare, request.node.name) as fresh:
        run("git", "clone", "--quiet", str(CLONE), f"{fresh}{CLONED}")
        yield fresh


def test_make_demo_shows_a_page_that_comes_in_time_and_goes(tree: Path) -> None:
    container = (
        "systemd-nspawn",
        "--quiet",
        "-D",
        str(tree),
        "--register=no",
        "--keep-unit",
        "--pipe",
        *PIP_BINDS,
    )
    done = subprocess.run(
        [*container, "make", "-C", CLONED, "demo", "DEMO_ARGS=--once"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^\d\d:\d\d:\d\d .*?  ([a-z][a-z ]+[a-z])(?:  .*)?$", done.stdout, re.MULTILINE)
    assert steps[-3:] == ["page received", "fault mended", "resolved"]
    (page,) = re.findall(r"^ +the live page, in a browser: (http\S+)$", done.stdout, re.MULTILINE)
    assert f"sidecar: {page}\n" in done.stdout


def test_make_test_installs_every_program_that_a_runbook_names(tree: Path) -> None:
    planned = inside(tree, "make", "--dry-run", "-C", CLONED, "test")
    steps = [line for line in planned.splitlines() if line.startswith("deploy/setup.sh ")]
    assert any(" prometheus " in step for step in steps), planned
    for step in steps:
        inside(tree, "sh", "-c", f"cd {CLONED} && {step}", network=True)
    named = {words[0] for command in fenced() for words in command.programs()} - {"omniwatch"}
    assert {"curl", "ps", "ss"} <= named
    look = 'for name; do command -v "$name" >/dev/null || echo "$name"; done'
    assert inside(tree, "sh", "-c", look, "sh", *sorted(named)).split() == []
