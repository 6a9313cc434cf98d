"""A CPU group of a test's own in the kernel's cgroup tree, version 1 or 2; needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.waiting import wait_until
from omniwatch.host.cgroup import Group

BASE = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class CpuGroup:
    """Directories of the group: limits and counters in `cpu`, accounting in `account`."""

    version: int
    cpu: Path
    account: Path

    def limit(self, *, quota_us: int | None, period_us: int, burst_us: int = 0) -> None:
        """Set the quota; None takes it away."""
        if self.version == 2:
            (self.cpu / "cpu.max.burst").write_text("0")
            (self.cpu / "cpu.max").write_text(f"{quota_us or 'max'} {period_us}")
            (self.cpu / "cpu.max.burst").write_text(str(burst_us))
            return
        (self.cpu / "cpu.cfs_burst_us").write_text("0")
        (self.cpu / "cpu.cfs_quota_us").write_text("-1")
        (self.cpu / "cpu.cfs_period_us").write_text(str(period_us))
        if quota_us:
            (self.cpu / "cpu.cfs_quota_us").write_text(str(quota_us))
            (self.cpu / "cpu.cfs_burst_us").write_text(str(burst_us))

    def weight(self, value: int) -> None:
        """Set the share against sibling groups, on version 2's scale (100 is the default)."""
        if self.version == 2:
            (self.cpu / "cpu.weight").write_text(str(value))
        else:
            (self.cpu / "cpu.shares").write_text(str(value * 1024 // 100))

    def add(self, pid: int) -> None:
        """Put a process into the group."""
        for directory in {self.cpu, self.account}:
            (directory / "cgroup.procs").write_text(str(pid))

    def as_group(self) -> Group:
        """The reader's view of it."""
        return Group(self.cpu.name, self.version, str(self.cpu), str(self.account), str(self.cpu))

    @contextmanager
    def child(self, name: str) -> Iterator[CpuGroup]:
        """Make a group in this one."""
        if self.version == 2:
            (self.cpu / "cgroup.subtree_control").write_text("+cpu")
        with _made([tree / name for tree in dict.fromkeys((self.cpu, self.account))], self.version) as group:
            yield group


@contextmanager
def cpu_group(name: str) -> Iterator[CpuGroup]:
    """Make the group, and remove it when its processes are gone."""
    unified = (BASE / "cgroup.controllers").exists()
    if unified:
        (BASE / "cgroup.subtree_control").write_text("+cpu")
        trees = [BASE]
    else:
        joint = BASE / "cpu,cpuacct"
        trees = [joint] if joint.is_dir() else [BASE / "cpu", BASE / "cpuacct"]
    with _made([tree / f"{name}-{os.getpid()}.scope" for tree in trees], 2 if unified else 1) as group:
        yield group


@contextmanager
def _made(directories: list[Path], version: int) -> Iterator[CpuGroup]:
    for directory in directories:
        directory.mkdir()
    try:
        yield CpuGroup(version, directories[0], directories[-1])
    finally:
        for directory in directories:
            wait_until(
                lambda at=directory: not (at / "cgroup.procs").read_text(), what=f"{directory} to empty"
            )
            directory.rmdir()
