"""The drop-in that `omniwatch tune --apply` writes: its text, its way back, and what the kernel made of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from helpers.kernel import Kernel
from helpers.trees import grow
from omniwatch.host.cgroup import Limits, locate
from omniwatch.settings import Server
from omniwatch.tune import change, dropin
from omniwatch.tune.model import Limit


def test_the_drop_in_takes_a_quota_away_or_sets_one() -> None:
    free = dropin.text("a.service", Limit(None), 900, None).splitlines()
    assert free[1:] == ["[Service]", "CPUQuota=", "CPUQuotaPeriodSec=", "CPUAccounting=yes", "CPUWeight=900"]
    capped = dropin.text(
        "a.service", Limit(0.32, 0.1, 0.32), 900, "/sys/fs/cgroup/x/cpu.max.burst"
    ).splitlines()
    assert "CPUQuota=320%" in capped
    assert "CPUQuotaPeriodSec=100ms" in capped
    written = """ExecStartPost=-+/bin/sh -c 'echo 320000 > "$$0"' "/sys/fs/cgroup/x/cpu.max.burst\""""
    assert capped[-1] == written
    assert "CPUQuota=12.5%" in dropin.text("a.service", Limit(0.0125, 0.1), 900, None).splitlines()
    assert dropin.text("ai.slice", Limit(None), 900, None).splitlines()[1] == "[Slice]"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (r"/a/omni\x2dvoice.service/b", r'"/a/omni\\x2dvoice.service/b"'),
        ("/a/50%h/$HOME/b", '"/a/50%%h/$$HOME/b"'),
        ('/a/it\'s "so"/b', r'''"/a/it's \"so\"/b"'''),
        ("/a\nExecStart=/evil", r'''"/a\nExecStart=/evil"'''),
    ],
)
def test_nothing_in_the_bursts_path_is_more_than_text_to_systemd(path: str, word: str) -> None:
    lines = dropin.text("a.service", Limit(0.32, 0.1, 0.32), 900, path).splitlines()
    assert lines[-1] == f"""ExecStartPost=-+/bin/sh -c 'echo 320000 > "$$0"' {word}"""
    assert len(lines) == 7


def tree(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


def test_apply_and_revert_leave_the_tree_as_it_was(tmp_path: Path) -> None:
    reloads: list[int] = []
    for before in ({}, {"etc/systemd/system/qwen3-omni.service.d/50-cpu.conf": "[Service]\nCPUQuota=80%\n"}):
        for name, content in before.items():
            grow(tmp_path, f"{name}: ")
            (tmp_path / name).write_text(content)
        for weight in (900, 800):
            text = dropin.text("qwen3-omni.service", Limit(None), weight, None)
            target = dropin.apply("qwen3-omni.service", text, lambda: reloads.append(1), tmp_path)
            assert target.read_text() == text
            assert dropin.diff(dropin.place("qwen3-omni.service"), text, tmp_path) == ""
        assert dropin.revert("qwen3-omni.service", lambda: reloads.append(1), tmp_path) == target
        assert tree(tmp_path) == before
    assert len(reloads) == 6


def test_a_slices_drop_in_is_named_where_the_servers_is_taken_back(tmp_path: Path) -> None:
    """`--apply` writes it where the slice has the tighter quota, and says so only then."""
    of_slice, of_server = (
        dropin.apply(unit, dropin.text(unit, Limit(None), 900, None), lambda: None, tmp_path)
        for unit in ("ai.slice", "qwen3-omni.service")
    )
    way = f"; `omniwatch tune --unit ai.slice --revert` takes {of_slice} back"
    server = Server(unit="qwen3-omni.service")
    target = change.revert(server, tmp_path, lambda: None)
    assert change.taken_back(target, tmp_path) == f"took back {of_server}{way}"
    target = change.revert(server, tmp_path, lambda: None)
    assert change.taken_back(target, tmp_path) == f"nothing to take back{way}"
    target = change.revert(Server(unit="ai.slice"), tmp_path, lambda: None)
    assert change.taken_back(target, tmp_path) == f"took back {of_slice}"


@pytest.mark.parametrize("unit", [r"omni\x2dvoice.service", "a.service"])
def test_the_way_back_can_be_pasted_into_a_shell(tmp_path: Path, unit: str) -> None:
    text = dropin.text(unit, Limit(None), 900, None)
    dropin.apply(unit, text, lambda: None, tmp_path)
    for said in (text.splitlines()[0], dropin.ways_back(dropin.own_units(tmp_path), tmp_path)):
        command = said.split("`")[-2]
        assert shlex.split(command) == ["omniwatch", "tune", "--unit", unit, "--revert"]


def test_another_ones_drop_in_is_left_alone(tmp_path: Path) -> None:
    grow(tmp_path, "etc/systemd/system/qwen3-omni.service.d/50-cpu.conf: [Service]\\nCPUQuota=80%")
    before = tree(tmp_path)
    with pytest.raises(dropin.DropinError, match="omniwatch did not write this file"):
        dropin.revert("qwen3-omni.service", lambda: None, tmp_path)
    assert tree(tmp_path) == before
    (tmp_path / "etc/systemd/system/qwen3-omni.service.d/50-cpu.conf").unlink()
    assert dropin.revert("qwen3-omni.service", lambda: None, tmp_path) is None


@pytest.mark.parametrize(
    ("taken", "says"),
    [
        (None, "cpu controller is not active"),
        (Limits(0.05, 0.1, 0.0, 900), "the kernel has a quota of 0.5 CPUs, not a quota of 3.2 CPUs"),
        (Limits(None, 0.1, 0.0, 900), "the kernel has no quota, not a quota of 3.2 CPUs"),
        (Limits(0.064, 0.02, 0.064, 900), "the kernel's period is 20 ms, not 100 ms"),
        (Limits(0.32, 0.1, 0.32, 100), "the kernel's weight is 100, not 900"),
        (Limits(0.32, 0.1, 0.0, 900), "the kernel's burst is 0 ms, not 320 ms"),
        (Limits(0.32, 0.1, 0.32, 899.9), ""),
        (Limits(0.32, 0.1, None, None), ""),
    ],
)
def test_what_the_kernel_took_is_compared_with_what_was_set(taken: Limits | None, says: str) -> None:
    found = dropin.mismatch(Limit(0.32, 0.1, 0.32), 900, taken)
    assert says in found
    assert bool(found) == bool(says)


def test_a_change_is_read_back_from_the_kernels_files(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=1)
    group = locate(Server(), tmp_path)[0]
    (kernel.directory / "cpu.max.burst").write_text("0")
    plan = change.plan(Server(), group, Limit(0.2, 0.1, 0.2), 900, tmp_path)
    assert "+CPUQuota=200%" in plan.diff

    def systemd() -> None:
        (kernel.directory / "cpu.max").write_text("200000 100000\n")
        (kernel.directory / "cpu.weight").write_text("900\n")

    assert change.apply(Server(), plan, tmp_path, systemd) == ""
    assert group.limits() == Limits(0.2, 0.1, 0.2, 900)
    other = change.plan(Server(), group, Limit(None), 900, tmp_path)
    wrong = change.apply(Server(), other, tmp_path, lambda: None, settle_s=0)
    assert wrong == "the kernel has a quota of 2 CPUs, not no quota"


def test_a_containers_limits_are_not_systemds(tmp_path: Path) -> None:
    Kernel(tmp_path, cores=1)
    grow(tmp_path, "run/qwen3-omni/container.id: 0123")
    with pytest.raises(dropin.DropinError, match="starts a container, which systemd's limits do not reach"):
        change.plan(Server(), locate(Server(), tmp_path)[0], Limit(None), 900, tmp_path)
