"""The model server's cgroup: version 1 and 2, quota, no quota, no controller, parents, containers, and a live one."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.core import Metric

from helpers.cgroup_trees import V1, V2
from helpers.trees import grow
from omniwatch.host.cgroup import Reader, Usage, locate, tightest
from omniwatch.settings import Server, Settings

UNIT = "qwen3-omni.service"


def values(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {(s.name, s.labels["unit"]): s.value for family in families for s in family.samples}


def scrape(root: Path) -> dict[tuple[str, str], float]:
    return values(list(Reader(Settings(), root).collect()))


@pytest.mark.parametrize("tree", [V2, V1], ids=["v2", "v1"])
def test_both_versions_give_the_same_units(tmp_path: Path, tree: str) -> None:
    found = scrape(grow(tmp_path, tree))
    assert found.pop(("omni_server_cpu_burst_seconds", UNIT), 0.02) == 0.02
    assert found == {
        ("omni_server_running", UNIT): 1,
        ("omni_server_cpu_controller", UNIT): 1,
        ("omni_server_cpu_seconds_total", UNIT): 2.5,
        ("omni_server_cpu_periods_total", UNIT): 1000,
        ("omni_server_cpu_throttled_periods_total", UNIT): 74,
        ("omni_server_cpu_throttled_seconds_total", UNIT): 3.25,
        ("omni_server_cpu_quota_cores", UNIT): 0.5,
        ("omni_server_cpu_period_seconds", UNIT): 0.1,
        ("omni_server_cpu_weight", UNIT): 900,
    }


def test_without_a_quota_the_quota_is_absent_not_infinite(tmp_path: Path) -> None:
    grow(tmp_path, V2)
    (tmp_path / "sys/fs/cgroup/system.slice" / UNIT / "cpu.max").write_text("max 100000\n")
    found = scrape(tmp_path)
    assert ("omni_server_cpu_quota_cores", UNIT) not in found
    assert found["omni_server_cpu_period_seconds", UNIT] == 0.1


def test_version_2_without_the_cpu_controller_says_so(tmp_path: Path) -> None:
    """JetPack 5 with realtime group scheduling: cpu.max does not exist, and CPUQuota= silently does nothing."""
    grow(tmp_path, V2)
    group = tmp_path / "sys/fs/cgroup/system.slice" / UNIT
    for name in ("cpu.max", "cpu.max.burst", "cpu.weight"):
        (group / name).unlink()
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2\nsystem_usec 3\n")
    assert scrape(tmp_path) == {
        ("omni_server_running", UNIT): 1,
        ("omni_server_cpu_controller", UNIT): 0,
        ("omni_server_cpu_seconds_total", UNIT): 2.5,
    }


def test_version_1_unit_without_a_group_in_the_cpu_tree(tmp_path: Path) -> None:
    grow(tmp_path, "sys/fs/cgroup/systemd/system.slice/qwen3-omni.service/cgroup.procs: 12")
    grow(tmp_path, "sys/fs/cgroup/cpu/system.slice/cpu.cfs_quota_us: -1")
    assert scrape(tmp_path) == {
        ("omni_server_running", UNIT): 1,
        ("omni_server_cpu_controller", UNIT): 0,
    }


def test_version_1_unit_whose_cpu_time_only_the_hybrid_tree_accounts(tmp_path: Path) -> None:
    grow(tmp_path, V1)
    group = tmp_path / "sys/fs/cgroup/cpu,cpuacct/system.slice" / UNIT
    (group / "cpuacct.usage").unlink()
    grow(tmp_path, "sys/fs/cgroup/unified/system.slice/qwen3-omni.service/cpu.stat: usage_usec 1700000")
    assert ("omni_server_cpu_seconds_total", UNIT) not in scrape(tmp_path)
    (tmp_path / "sys/fs/cgroup/cpu").unlink()
    (tmp_path / "sys/fs/cgroup/cpuacct").unlink()
    (tmp_path / "sys/fs/cgroup/cpu,cpuacct").rename(tmp_path / "sys/fs/cgroup/cpu")
    assert scrape(tmp_path)["omni_server_cpu_seconds_total", UNIT] == 1.7


def test_a_parents_quota_is_reported_under_the_parents_name(tmp_path: Path) -> None:
    grow(tmp_path, V2)
    slice_ = tmp_path / "sys/fs/cgroup/system.slice"
    (slice_ / "cpu.max").write_text("200000 100000\n")
    (slice_ / "cpu.stat").write_text("usage_usec 7\nnr_periods 40\nnr_throttled 4\nthrottled_usec 1000000\n")
    found = scrape(tmp_path)
    assert found["omni_server_cpu_quota_cores", "system.slice"] == 2
    assert found["omni_server_cpu_throttled_periods_total", "system.slice"] == 4
    assert found["omni_server_cpu_quota_cores", UNIT] == 0.5
    assert tightest(locate(Server(), tmp_path)).name == UNIT
    (slice_ / "cpu.max").write_text("40000 100000\n")
    assert tightest(locate(Server(), tmp_path)).name == "system.slice"


@pytest.mark.parametrize(
    "slice_", ["omni.slice", "ai.slice/ai-models.slice", "system.slice/system-qwen3.slice"]
)
def test_a_unit_in_another_slice_is_found(tmp_path: Path, slice_: str) -> None:
    grow(tmp_path, "sys/fs/cgroup/cgroup.controllers: cpu")
    grow(tmp_path, f"sys/fs/cgroup/{slice_}/qwen3-omni.service/cpu.stat: usage_usec 1000000")
    assert scrape(tmp_path)["omni_server_cpu_seconds_total", UNIT] == 1


@pytest.mark.parametrize(
    ("place", "version_file"),
    [
        ("sys/fs/cgroup/system.slice/docker-{id}.scope", "sys/fs/cgroup/cgroup.controllers: cpu"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/{id}", "sys/fs/cgroup/cpu,cpuacct/tasks: 1"),
        ("sys/fs/cgroup/machine.slice/libpod-{id}.scope", "sys/fs/cgroup/cgroup.controllers: cpu"),
    ],
)
def test_a_containers_group_goes_before_the_unit_that_started_it(
    tmp_path: Path, place: str, version_file: str
) -> None:
    grow(tmp_path, version_file)
    grow(tmp_path, V2 if "controllers" in version_file else V1)
    grow(tmp_path, "run/qwen3-omni/container.id: 0123abcd")
    grow(tmp_path, place.format(id="0123abcd") + "/cgroup.procs: 99")
    (group, *_) = locate(Server(), tmp_path)
    assert (group.name, list(group.pids())) == (UNIT, [99])


def test_a_stale_container_id_falls_back_to_the_unit(tmp_path: Path) -> None:
    grow(grow(tmp_path, V2), "run/qwen3-omni/container.id: gone")
    assert next(iter(locate(Server(), tmp_path))).usage() == Usage(2.5, 1000, 74, 3.25)


def test_a_server_that_is_not_there_is_only_not_running(tmp_path: Path) -> None:
    assert scrape(tmp_path) == {("omni_server_running", UNIT): 0}
    assert scrape(grow(tmp_path, "sys/fs/cgroup/cgroup.controllers: cpu")) == {
        ("omni_server_running", UNIT): 0
    }


def test_a_unit_whose_processes_are_gone_is_not_running(tmp_path: Path) -> None:
    grow(tmp_path, V2)
    (tmp_path / "sys/fs/cgroup/system.slice" / UNIT / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert scrape(tmp_path)["omni_server_running", UNIT] == 0


def test_processes_in_groups_below_count(tmp_path: Path) -> None:
    grow(tmp_path, V1)
    grow(tmp_path, "sys/fs/cgroup/cpu,cpuacct/system.slice/qwen3-omni.service/worker/cgroup.procs: 4713")
    (group, *_) = locate(Server(), tmp_path)
    assert sorted(group.pids()) == [4711, 4713]
