"""buildah and podman with a store of their own, over the system tests' tree as the base image: nothing is pulled. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.paths import CLONE
from suites.system.machine import base, run

BASE = "localhost/base:latest"
UNUSED = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists", "srv")
"""What an image for containers leaves out of a Debian tree."""
BOOTING = (
    *("systemd-sysv", "systemd", "libpam-systemd", "libsystemd-shared", "udev", "libkmod2", "libjson-c5"),
    *("dbus", "dbus-daemon", "dbus-bin", "dbus-session-bus-common", "dbus-system-bus-common", "libdbus-1-3"),
    *(
        "libcryptsetup12",
        "libdevmapper1.02.1",
        "dmsetup",
        "libargon2-1",
        "libip4tc2",
        "libfdisk1",
        "libapparmor1",
    ),
)
"""Packages of a tree that boots. Debian's image for containers has none of them."""
STORAGE = '[storage]\ndriver = "{1}"\ngraphroot = "{0}/images"\nrunroot = "{0}/run"\n'
CONTAINERS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
# Debian's crun refuses the mixed cgroups of some machines. Its cgroups and log need no systemd.
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Engine(NamedTuple):
    """Where images and containers are kept."""

    environment: dict[str, str]

    def podman(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run podman. What fails is raised with its words."""
        done = subprocess.run(
            ["podman", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=self.environment,
        )
        assert not check or done.returncode == 0, (
            f"podman {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def load(self, archive: Path) -> None:
        """Load a compressed archive. podman 4.3 reads none itself."""
        with subprocess.Popen(
            ["gzip", "--stdout", "--decompress", archive], stdout=subprocess.PIPE
        ) as unpacked:
            done = subprocess.run(
                ["podman", "load", "--quiet"],
                stdin=unpacked.stdout,
                capture_output=True,
                text=True,
                check=False,
                env=self.environment,
            )
        assert done.returncode == 0, done.stderr

    def build(self, dist: Path) -> dict[str, Path]:
        """Build both images by the project's own script; return each one's archive by its name."""
        done = subprocess.run(
            ["deploy/container/build.sh"],
            cwd=CLONE,
            env=self.environment
            | {"BASE": BASE, "ISOLATION": "chroot", "BIN": str(Path(sys.prefix, "bin")), "DIST": str(dist)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return {Path(line).name.partition("_")[0]: Path(line) for line in done.stdout.split()}

    @contextmanager
    def container(self, *arguments: str) -> Iterator[str]:
        """Start a container in the background; yield its id, and remove it at the end."""
        started = self.podman("run", "--detach", *arguments).stdout.strip()
        try:
            yield started
        finally:
            self.podman("rm", "--force", "--time=0", started, check=False)


def engine(directory: Path) -> Engine:
    """Return an engine whose store is in a directory, with the base image."""
    (directory / "storage.conf").write_text(STORAGE.format(directory, driver(directory)))
    (directory / "containers.conf").write_text(CONTAINERS)
    made = Engine(
        {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "CONTAINERS_CONF": str(directory / "containers.conf"),
        }
    )
    tree = directory / "base"
    run("cp", "--archive", "--reflink=auto", str(base()), str(tree))
    run("chroot", str(tree), "dpkg", "--purge", "--force-depends", *BOOTING)
    for name in UNUSED:
        shutil.rmtree(tree / name, ignore_errors=True)
    run("tar", "--create", "--directory", str(tree), "--file", str(directory / "base.tar"), ".")
    shutil.rmtree(tree)
    made.podman("import", str(directory / "base.tar"), BASE)
    (directory / "base.tar").unlink()
    return made


def driver(directory: Path) -> str:
    """The driver for images: overlay, which copies nothing, or vfs where this file system cannot carry it."""
    names = ("lower", "upper", "work", "merged")
    for name in names:
        (directory / name).mkdir()
    lower, upper, work, merged = (directory / name for name in names)
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", layers, str(merged)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        run("umount", str(merged))
    return "overlay" if mounted.returncode == 0 else "vfs"
