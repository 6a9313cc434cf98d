"""Apply a recommendation: write the drop-in, reload systemd, read back what the kernel applies."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from omniwatch.host.cgroup import Group, locate
from omniwatch.settings import Server
from omniwatch.system import rooted
from omniwatch.system.sysfs import read_text
from omniwatch.tune import dropin
from omniwatch.tune.model import Limit

SETTLE_S = 5.0
"""How long systemd may take to hand a limit to the kernel."""


class Plan(NamedTuple):
    """What would be written where, and how it differs from what is there."""

    limit: Limit
    weight: int
    text: str
    target: Path
    diff: str


def plan(server: Server, group: Group, limit: Limit, weight: int, root: Path = Path("/")) -> Plan:
    """Work out the drop-in. Raises DropinError for a container, whose limits are not systemd's."""
    if read_text(root / server.container_id_file.lstrip("/")):
        raise dropin.DropinError(
            f"{server.unit} starts a container, which systemd's limits do not reach: set --cpu-shares (and --cpus) in its"
            " command instead"
        )
    text = dropin.text(server.unit, limit, weight, burst_file(group))
    target = rooted.shown(root, dropin.place(server.unit))
    return Plan(limit, weight, text, target, dropin.diff(dropin.place(server.unit), text, root))


def burst_file(group: Group) -> str | None:
    """Where the kernel takes a burst for the group; None where it knows none."""
    name = "cpu.max.burst" if group.version == 2 else "cpu.cfs_burst_us"
    path = f"{group.cpu}/{name}"
    return path if group.cpu and Path(path).exists() else None


def apply(
    server: Server,
    wanted: Plan,
    root: Path = Path("/"),
    reload: Callable[[], None] | None = None,
    settle_s: float = SETTLE_S,
) -> str:
    """Write, reload, and read back; return what the kernel has otherwise, "" when it took it. Raises DropinError."""
    reload = reload or daemon_reload
    _burst(server, root, 0.0)
    dropin.apply(server.unit, wanted.text, reload, root)
    deadline = time.monotonic() + settle_s
    while True:
        groups = locate(server, root)
        taken = groups[0].limits() if groups else None
        if wanted.limit.burst_s and taken and taken.quota_s is not None:
            _burst(server, root, wanted.limit.burst_s)
            taken = groups[0].limits()
        wrong = dropin.mismatch(wanted.limit, wanted.weight, taken)
        if not wrong or time.monotonic() >= deadline:
            return wrong
        time.sleep(0.1)


def revert(server: Server, root: Path = Path("/"), reload: Callable[[], None] | None = None) -> Path | None:
    """Take the drop-in back; None when there was none. Raises DropinError."""
    _burst(server, root, 0.0)
    return dropin.revert(server.unit, reload or daemon_reload, root)


def taken_back(target: Path | None, root: Path = Path("/")) -> str:
    """Say what `revert` returned, and how the drop-ins of other units, such as a slice's, are taken back. Raises OSError."""
    said = f"took back {target}" if target else "nothing to take back"
    others = (u for u in dropin.own_units(root) if rooted.shown(root, dropin.place(u)) != target)
    return said + dropin.ways_back(others, root)


def daemon_reload() -> None:
    """Have systemd read its units again, which also hands running ones their new limits. Raises DropinError."""
    try:
        done = subprocess.run(
            ["systemctl", "daemon-reload"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise dropin.DropinError(f"systemctl daemon-reload: {error}") from error
    if done.returncode:
        raise dropin.DropinError(f"systemctl daemon-reload: {done.stderr.strip()}")


def _burst(server: Server, root: Path, burst_s: float) -> None:
    """Set the burst, which systemd has no directive for. It must go before a quota that is smaller can come."""
    for group in locate(server, root)[:1]:
        path = burst_file(group)
        if path and read_text(path) != f"{burst_s * 1e6:.0f}":
            try:
                Path(path).write_text(f"{burst_s * 1e6:.0f}", encoding="ascii")
            except OSError as error:
                raise dropin.DropinError(f"{path}: {error.strerror}; tune --apply needs root") from error
