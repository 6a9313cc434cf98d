"""A cgroup's files and a clock that move on together, as the kernel would move them."""

from __future__ import annotations

from pathlib import Path

from helpers.trees import grow


class Kernel:
    """A group's files and a clock, moved on together: it runs while `busy` says so, under the quota's bookkeeping."""

    def __init__(self, root: Path, cores: float) -> None:
        self.now = 100.0
        self.used_us = 0.0
        self.throttled = 0
        self.cores = cores
        self.directory = root / "sys/fs/cgroup/system.slice/qwen3-omni.service"
        grow(root, "sys/fs/cgroup/cgroup.controllers: cpu")
        grow(root, "sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.max: 50000 100000")
        grow(root, "sys/fs/cgroup/system.slice/qwen3-omni.service/cgroup.procs: ")
        self.write()

    def write(self) -> None:
        periods = int((self.now - 100) / 0.1 + 1e-6)
        (self.directory / "cpu.stat").write_text(
            f"usage_usec {self.used_us:.0f}\nnr_periods {periods}\n"
            f"nr_throttled {self.throttled}\nthrottled_usec 0\n"
        )

    def wait(self, seconds: float) -> None:
        """Each period its first 25 ms on two CPUs, then nothing for 75 ms."""
        step = 0.001
        for _ in range(max(1, round(seconds / step))):
            phase = (self.now - 100) % 0.1
            if phase < 0.0245:
                self.used_us += step * self.cores * 1e6
            self.now += step
            self.throttled = int((self.now - 100) / 0.1 + 1e-6)
        self.write()

    def clock(self) -> float:
        return self.now
