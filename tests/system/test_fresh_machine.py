"""The README's first command on a machine that has nothing but Python and make: a bare Debian tree, this clone in it."""

from __future__ import annotations

import re
import subprocess

from machine import CLONE, PIP_BINDS, ROOTS, codename, copy_of, mirror, run

PACKAGES = "make,python3,ca-certificates"


def test_make_demo_shows_a_page_that_comes_in_time_and_goes():
    bare = ROOTS / f"{codename()}-bare"
    if not bare.is_dir():
        making = bare.with_suffix(".making")
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), str(making), mirror())
        making.rename(bare)
    with copy_of(bare, "fresh") as tree:
        run("git", "clone", "--quiet", str(CLONE), str(tree / "srv" / "omniwatch"))
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
            [*container, "make", "-C", "/srv/omniwatch", "demo", "DEMO_ARGS=--once"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^\d\d:\d\d:\d\d .*?  ([a-z][a-z ]+[a-z])(?:  .*)?$", done.stdout, re.MULTILINE)
    assert steps[-3:] == ["page received", "fault mended", "resolved"]
