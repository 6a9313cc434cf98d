"""A group of processes that the kernel really throttles: what is counted, and what `omniwatch tune` says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner

from helpers.cgroups import CpuGroup, cpu_group
from helpers.waiting import wait_until
from omniwatch.cli import main
from omniwatch.host.cgroup import Group, Limits


@contextmanager
def throttled_group() -> Iterator[CpuGroup]:
    """Two processes that never rest, under half a CPU."""
    with cpu_group("omniwatch-test-tune") as group:
        group.limit(quota_us=50_000, period_us=100_000)
        group.weight(900)  # on a busy machine it would not even get its quota
        spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            for spinner in spinners:
                group.add(spinner.pid)
            yield group
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()


def test_the_kernels_own_throttling_is_counted() -> None:
    """A process that spins under 10 ms in each 100 ms, in a group of this test's own."""
    with cpu_group("omniwatch-test-cgroup") as group:
        group.limit(quota_us=10_000, period_us=100_000)
        spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            group.add(spinner.pid)
            measured: Group = group.as_group()
            assert measured.limits() == Limits(0.01, 0.1, 0.0, 100.0)
            assert list(measured.pids()) == [spinner.pid]
            usage = wait_until(
                lambda: (now := measured.usage()) and (now.throttled_periods or 0) >= 3 and now,
                what="three throttled periods",
            )
            assert usage.periods is not None
            assert usage.throttled_periods is not None
            assert usage.periods >= usage.throttled_periods
            # 90 ms of each period, were the machine quiet; read in a wrong unit it were a thousand times more or less.
            assert usage.throttled_s is not None
            assert 0.009 < usage.throttled_s / usage.throttled_periods < 0.9
        finally:
            spinner.kill()
            spinner.wait()
    assert os.getpid() not in measured.pids()


def test_the_command_on_a_group_that_is_really_throttled() -> None:
    with throttled_group() as group:
        made: Group = group.as_group()
        result = CliRunner().invoke(main, ["tune", "--unit", made.name, "--seconds", "3", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["unit"] == made.name
    assert told["now"]["quota_cores"] == 0.5
    assert told["now"]["will_drift"] is True
    assert told["throttled_periods"] > 0
    assert told["recommended"]["quota_cores"] is None
    assert told["recommended"]["blackout_s"] == 0


def test_the_table_says_that_it_will_drift() -> None:
    with throttled_group() as group:
        result = CliRunner().invoke(main, ["tune", "--unit", group.as_group().name, "--seconds", "2"])
    assert result.exit_code == 0, result.output
    assert "WILL DRIFT" in result.output
    assert "recommended  no quota, weight 900" in result.output
