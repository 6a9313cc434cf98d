"""A machine of its own for a test: a Debian file tree, booted with its own systemd by systemd-nspawn. Needs root.

The bare tree is made once with debootstrap, from the mirror this machine itself uses, and kept in OMNIWATCH_TEST_ROOTS
(/var/tmp/omniwatch-test-roots). Each machine runs in a copy, with no network but its own loopback.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.waiting import wait_until

ROOTS = Path(os.environ.get("OMNIWATCH_TEST_ROOTS", "/var/tmp/omniwatch-test-roots"))
PACKAGES = "systemd,systemd-sysv,dbus,udev,python3,python3-venv,ca-certificates"
PIP_BINDS = [f"--bind-ro={path}" for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
CONTROLLERS = ("cpu", "cpuacct")
VOLATILE = re.compile(
    # What systemd, dpkg and Python write as they go, whatever is installed.
    r"^(proc|sys|dev|run|tmp|var/log|var/cache|var/tmp|var/lib/(systemd|dbus|apt|private)|root|lost\+found)(/|$)"
    r"|^etc/(machine-id|resolv\.conf|hostname|\.updated|\.pwd\.lock|ld\.so\.cache|(passwd|group|shadow|gshadow|subuid|subgid)-)$"
    r"|^var/\.updated$|__pycache__"
)


def mirror() -> str:
    """The mirror of this machine's own package sources."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in filter(Path.is_file, sources):
        for line in source.read_text(encoding="utf-8").splitlines():
            found = re.match(r"(?:URIs:|deb(?: \[.*\])?)\s+(https?://\S+)", line)
            if found and "security" not in found[1]:
                return found[1]
    raise LookupError("no package source in /etc/apt")


def codename() -> str:
    """This machine's release, such as bookworm."""
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    return re.findall(r"^VERSION_CODENAME=(\S+)$", text, re.MULTILINE)[0]


def base() -> Path:
    """The bare tree, with the packages that Omniwatch needs from pip in /srv/venv; made where it is not there yet."""
    needed = [line for line in importlib.metadata.requires("omniwatch") or [] if "extra ==" not in line]
    tree = ROOTS / f"{codename()}-{zlib.crc32(' '.join([PACKAGES, *needed]).encode()):08x}"
    if tree.is_dir():
        return tree
    unfinished = tree.with_name(f".{tree.name}.{os.getpid()}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        run(
            "debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), str(unfinished), mirror()
        )
        inside(unfinished, "python3", "-m", "venv", "/srv/venv")
        inside(unfinished, "/srv/venv/bin/pip", "install", "-q", *needed, network=True)
        unfinished.rename(tree)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return tree


def inside(
    tree: Path,
    *command: str,
    network: bool = False,
    user: str = "root",
    binds: Mapping[Path, str] | None = None,
) -> str:
    """Run a command in a tree that is not booted and return its output; with the network and this machine's pip settings,
    or without any. `binds` says where folders of this machine are seen there.
    """
    how = [*(PIP_BINDS if network else ["--private-network"]), f"--user={user}"]
    how += [f"--bind={folder}:{place}" for folder, place in (binds or {}).items()]
    return run(
        "systemd-nspawn", "-q", "-D", str(tree), "--register=no", "--keep-unit", "--pipe", *how, *command
    )


def run(*command: str, cwd: Path | None = None) -> str:
    """Run to the end, its output returned; its words are in the failure."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Machine:
    """A booted machine: `tree` is its file system, `run` a command in it."""

    def __init__(self, tree: Path, leader: int) -> None:
        self.tree = tree
        self.leader = leader

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as root inside."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "--"]
        inside = [
            "/usr/bin/env",
            "-i",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
            "LANG=C.UTF-8",
        ]
        done = subprocess.run(
            [*enter, *inside, *command], capture_output=True, text=True, timeout=300, check=False
        )
        assert not check or done.returncode == 0, (
            f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n{self.journal()}"
        )
        return done

    def is_up(self) -> bool:
        """Whether it is booted."""
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in (
            "running",
            "degraded",
        )

    def journal(self) -> str:
        """The end of the machine's log."""
        return self.run("journalctl", "-b", "-n", "60", "--no-pager", check=False).stdout

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()

    def metrics(self, address: str = "http://127.0.0.1:9842/metrics") -> dict[str, float]:
        """What the sidecar says, by name and labels; none while it does not answer."""
        lines = (
            line.rpartition(" ")
            for line in self._get(address).splitlines()
            if line and not line.startswith("#")
        )
        return {name: float(value) for name, _, value in lines}

    def feed(self) -> dict[str, Any]:
        """What the sidecar's live page shows."""
        feed: dict[str, Any] = json.loads(self._get("http://127.0.0.1:9842/live.json"))
        return feed

    def _get(self, address: str) -> str:
        fetch = f"import urllib.request as u; print(u.urlopen({address!r}, timeout=5).read().decode())"
        return self.run("python3", "-c", fetch, check=False).stdout

    def give_cpu_controller(self) -> None:
        """Let this machine's systemd set CPU limits for real, in a group of its own of this machine's cpu tree.

        systemd-nspawn makes the controllers of cgroup version 1 read-only.
        """
        for controller in CONTROLLERS:
            own = self.own_group(controller)
            own.mkdir(exist_ok=True)
            mounted = f"/sys/fs/cgroup/{controller}"
            self.run("mount", "--bind", f"{mounted}/{own.name}", mounted)
            self.run("mount", "-o", "remount,rw,bind", mounted)
        self.run("systemctl", "daemon-reexec")

    @staticmethod
    def own_group(controller: str) -> Path:
        """The group below which `give_cpu_controller` lets this machine make its own."""
        return Path("/sys/fs/cgroup", controller, f"omniwatch-system-{os.getpid()}")


@contextmanager
def booted(tree: Path) -> Iterator[Machine]:
    """Boot the tree; it is powered off at the end."""
    command = [
        "systemd-nspawn",
        "-q",
        "-D",
        str(tree),
        "--register=no",
        "--keep-unit",
        "--private-network",
        "--boot",
    ]
    with (tree.parent / f"{tree.name}.console").open("wb") as console:
        nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")

        def up() -> Machine | None:
            # At first the child is one that only makes the machine's first process, is still on this machine, and ends.
            found = [
                Machine(tree, int(pid))
                for pid in children.read_text().split()
                if pid_namespace(pid) != pid_namespace()
            ]
            return next((machine for machine in found if machine.is_up()), None)

        machine = wait_until(up, timeout=180, what="the machine to be up")
        yield machine
    finally:
        nspawn.terminate()
        try:
            nspawn.wait(60)
        except subprocess.TimeoutExpired:
            nspawn.kill()
            nspawn.wait()
        for controller in CONTROLLERS:
            remove_groups(Machine.own_group(controller))


def pid_namespace(pid: str = "self") -> str | None:
    """The namespace that a process is in; None where it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except FileNotFoundError:
        return None


def remove_groups(group: Path) -> None:
    """Remove a cgroup and those in it, once their processes are gone."""
    if group.is_dir():
        for below in group.iterdir():
            if below.is_dir():
                remove_groups(below)
        wait_until(lambda: not (group / "cgroup.procs").read_text(), what=f"{group} to empty")
        group.rmdir()


@contextmanager
def copy_of(tree: Path, name: str) -> Iterator[Path]:
    """A copy of a tree, removed at the end."""
    copy = tree.with_name(f"run-{os.getpid()}-{name}")
    run("cp", "-a", "--reflink=auto", str(tree), str(copy))
    try:
        yield copy
    finally:
        shutil.rmtree(copy)
        copy.with_name(f"{copy.name}.console").unlink(missing_ok=True)


def snapshot(tree: Path) -> dict[str, str]:
    """Every path that lasts, with what it holds."""
    found = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if VOLATILE.search(name):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = str(hash(path.read_bytes()))
        else:
            found[name] = "folder"
    return found


def put(machine: Machine, name: str, text: str, mode: int = 0o644) -> None:
    """Write a file into the machine."""
    path = machine.tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
