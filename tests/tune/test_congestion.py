"""What `omniwatch tune --congestion` sees, says, writes and takes back, on trees of kernels with BBR and without."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner, Result

from helpers.kernel import Kernel as CpuKernel
from helpers.trees import grow
from omniwatch.cli import main
from omniwatch.host import cgroup
from omniwatch.tune import change, congestion, output, sample
from omniwatch.tune.congestion import MODULES, SYSCTL, Kernel, most_bytes_s
from omniwatch.tune.dropin import DropinError

RELEASE = "5.15.148-tegra"
RUNNING = "proc/sys/net/ipv4/tcp_congestion_control"
HEAD = "# Written by `omniwatch tune`; `omniwatch tune --congestion --revert` takes it back.\n"
KERNELS = {
    "built in": "reno cubic bbr",
    "loaded": "reno cubic bbr\nlib/modules/{release}/modules.dep: kernel/net/ipv4/tcp_bbr.ko.zst:",
    "not loaded": "reno cubic\nlib/modules/{release}/modules.dep: kernel/net/ipv4/tcp_bbr.ko: kernel/lib/a.ko",
    "absent": "reno cubic\nlib/modules/{release}/modules.dep: kernel/net/ipv4/tcp_vegas.ko:",
    "no modules": "reno cubic",
}


def kernel_of(root: Path, kind: str, runs: str = "cubic", release: str = RELEASE) -> Path:
    return grow(
        root,
        f"{RUNNING}: {runs}\nproc/sys/kernel/osrelease: {release}\n"
        f"proc/sys/net/ipv4/tcp_available_congestion_control: {KERNELS[kind].format(release=release)}",
    )


def tree(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


def runs(root: Path) -> str:
    return (root / RUNNING).read_text().strip()


def apply(root: Path) -> str:
    return congestion.apply(congestion.files(congestion.look(root), root), root)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("built in", "in this kernel"),
        ("loaded", "a module, loaded"),
        ("not loaded", "a module that is not loaded"),
        ("absent", ""),
        ("no modules", ""),
    ],
)
def test_it_is_seen_whether_a_kernel_has_bbr(tmp_path: Path, kind: str, says: str) -> None:
    kernel = congestion.look(kernel_of(tmp_path, kind))
    assert (kernel.congestion_control, kernel.release, kernel.bbr) == ("cubic", RELEASE, says)


@pytest.mark.parametrize("kind", ["built in", "loaded", "not loaded"])
def test_apply_and_revert_leave_the_tree_as_it_was(tmp_path: Path, kind: str) -> None:
    kernel_of(tmp_path, kind)
    for others in ({}, {str(SYSCTL)[1:]: "net.ipv4.tcp_congestion_control=reno\n"}):
        for name, content in others.items():
            grow(tmp_path, f"{name}: ")
            (tmp_path / name).write_text(content)
        before = {name: text.strip() for name, text in tree(tmp_path).items()}
        for _ in range(2):
            assert apply(tmp_path) == ""
            assert runs(tmp_path) == "bbr"
            line = "net.ipv4.tcp_congestion_control = bbr\n"
            assert (tmp_path / str(SYSCTL)[1:]).read_text() == f"{HEAD}# Before: cubic\n{line}"
            module = tmp_path / str(MODULES)[1:]
            assert (module.read_text() if module.exists() else "") == (
                "" if kind == "built in" else f"{HEAD}tcp_bbr\n"
            )
        kept = tmp_path / f"{str(SYSCTL)[1:]}.before-omniwatch"
        assert kept.exists() == bool(others)
        assert congestion.revert(tmp_path)[-1] == tmp_path / str(SYSCTL)[1:]
        assert {name: text.strip() for name, text in tree(tmp_path).items()} == before
        (tmp_path / str(SYSCTL)[1:]).unlink(missing_ok=True)
        assert congestion.revert(tmp_path) == []


def test_what_somebody_set_since_is_left_as_it_runs(tmp_path: Path) -> None:
    apply(kernel_of(tmp_path, "built in"))
    (tmp_path / RUNNING).write_text("reno\n")
    assert congestion.revert(tmp_path) == [tmp_path / str(SYSCTL)[1:]]
    assert runs(tmp_path) == "reno"


def test_an_image_gets_back_its_files_and_no_running_value(tmp_path: Path) -> None:
    apply(kernel_of(tmp_path, "not loaded"))
    assert len(congestion.revert(tmp_path, is_running=False)) == 2
    assert runs(tmp_path) == "bbr"
    assert congestion.revert(tmp_path / "elsewhere", is_running=False) == []


def test_anothers_file_is_left_alone(tmp_path: Path) -> None:
    kernel_of(tmp_path, "built in")
    grow(tmp_path, f"{str(SYSCTL)[1:]}: net.ipv4.tcp_congestion_control=reno")
    before = tree(tmp_path)
    with pytest.raises(DropinError, match="omniwatch did not write this file and leaves it alone"):
        congestion.revert(tmp_path)
    assert tree(tmp_path) == before


def test_a_kernel_that_refuses_leaves_nothing_written(tmp_path: Path) -> None:
    kernel_of(tmp_path, "not loaded")
    (tmp_path / RUNNING).unlink()
    # Read below the root, written to for real: as from a kernel, the error comes with the write.
    grow(tmp_path, f"dev/full: cubic\n{RUNNING} -> /dev/full\netc/sysctl.d/\netc/modules-load.d/")
    before = tree(tmp_path)
    with pytest.raises(DropinError, match=rf"{RUNNING}: No space left on device; tune --apply needs root"):
        apply(tmp_path)
    assert tree(tmp_path) == before


def test_a_kernel_that_takes_something_else_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "_set", lambda root, value: None)
    assert apply(kernel_of(tmp_path, "built in")) == "the kernel has cubic, not bbr"


def test_a_kernel_that_does_not_say_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DropinError, match="the kernel does not say what new connections get"):
        congestion.look(tmp_path)


def test_the_file_is_read_after_all_others() -> None:
    """sysctl.d(5): in the order of their names. 99-sysctl.conf is Debian's link to /etc/sysctl.conf."""
    assert SYSCTL.name > "99-sysctl.conf"
    assert SYSCTL.parent == PurePosixPath("/etc/sysctl.d")


@pytest.mark.parametrize(
    ("release", "paces"),
    [("4.9.337-tegra", False), ("4.12.0", False), ("4.13.0", True), ("5.10.104", True)],
)
def test_the_queueing_discipline_is_changed_for_an_old_kernel_only(release: str, paces: bool) -> None:
    kernel = Kernel(release, "cubic", "in this kernel", False)
    assert (
        "net.core.default_qdisc = fq\n" in congestion.files(kernel, Path("/nowhere"))[SYSCTL]
    ) is not paces


@pytest.mark.parametrize(
    ("loss", "rtt_ms", "kilobytes"),
    [(0.1, 100, 55.9), (0.01, 100, 176.7), (0.1, 200, 27.9), (0.02, 50, 249.8)],
)
def test_a_loss_based_connection_carries_what_the_formula_says(
    loss: float, rtt_ms: float, kilobytes: float
) -> None:
    assert most_bytes_s(loss, rtt_ms / 1000) / 1000 == pytest.approx(kilobytes, abs=0.05)


def said(root: Path, rtt_s: float = 0.1, loss: float = 0.1) -> str:
    return "\n".join(output.congestion_as_text(congestion.look(root), rtt_s, loss))


def test_what_runs_and_what_it_is_worth_is_said(tmp_path: Path) -> None:
    text = said(kernel_of(tmp_path, "not loaded"), 0.15, 0.05)
    assert text.splitlines()[:6] == [
        f"new connections of this machine, Linux {RELEASE}",
        "  now            cubic, which sends less after each lost packet",
        "  bbr            a module that is not loaded",
        "path of 150 ms round trip that loses 5 % of its packets",
        "  loss-based     52.7 kB/s at most: 1.22 x 1448 bytes / (round trip x sqrt(loss))",
        "  bbr            what the path has room for: such loss does not slow it down",
    ]
    assert "\nrecommended: bbr\nnote: all new connections of this machine get it" in text
    apply(tmp_path)
    assert "  now            bbr\n" in said(tmp_path)
    assert said(tmp_path).endswith("nothing to change: bbr runs")


def test_a_kernel_without_bbr_is_said_in_a_line(tmp_path: Path) -> None:
    text = said(kernel_of(tmp_path, "absent"))
    assert f"\n  bbr            not in this kernel, nor in /lib/modules/{RELEASE}\n" in text
    assert text.splitlines()[-1].startswith("nothing to set: BBR needs another kernel")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in place of the machine's."""
    for function in (congestion.look, congestion.files, congestion.diff, congestion.apply, congestion.revert):
        assert function.__defaults__ == (Path("/"),)
        monkeypatch.setattr(function, "__defaults__", (tmp_path,))
    return tmp_path


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", "--congestion", *arguments])


def test_the_command_from_the_look_to_the_way_back(device: Path) -> None:
    kernel_of(device, "not loaded")
    before = tree(device)
    assert tune().exit_code == 0
    differs = tune("--diff")
    assert (differs.exit_code, tree(device)) == (1, before)
    assert "+net.ipv4.tcp_congestion_control = bbr\n" in differs.stdout
    assert "+tcp_bbr\n" in differs.stdout
    done = tune("--apply", "--yes")
    assert (done.exit_code, runs(device)) == (0, "bbr")
    assert done.stdout.endswith(f"wrote {SYSCTL}, {MODULES}; the kernel took it\n")
    again = tune("--apply", "--yes")
    assert (again.exit_code, tune("--diff").exit_code) == (0, 0)
    assert again.stdout.endswith("nothing to change: bbr runs\n")
    back = tune("--revert")
    assert back.stdout == f"took back {device / str(MODULES)[1:]}, {device / str(SYSCTL)[1:]}\n"
    assert runs(device) == "cubic"
    assert tune("--revert").stdout == "nothing to take back\n"


def test_json_has_the_same_in_seconds_and_bytes(device: Path) -> None:
    kernel_of(device, "absent")
    found = json.loads(tune("--json", "--rtt-ms", "200", "--loss-percent", "1").stdout)
    assert (found["congestion_control"], found["is_loss_based"], found["bbr"]) == ("cubic", True, "")
    assert found["path"] == {"rtt_s": 0.2, "loss": 0.01}
    assert found["loss_based_most_bytes_s"] == 88328
    kernel_of(device, "built in", runs="bbr")
    assert json.loads(tune("--json").stdout)["is_loss_based"] is False


def test_apply_where_there_is_no_bbr_is_one_line(device: Path) -> None:
    before = tree(kernel_of(device, "absent"))
    done = tune("--apply", "--yes")
    assert done.exit_code == 2
    assert done.stderr == f"Error: Linux {RELEASE} has no BBR: nothing is written\n"
    assert (tune("--diff").exit_code, tree(device)) == (0, before)


def test_a_kernel_that_takes_something_else_is_exit_code_1(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_of(device, "built in")
    monkeypatch.setattr(congestion, "_set", lambda root, value: None)
    done = tune("--apply", "--yes")
    assert (done.exit_code, done.stderr) == (1, "congestion control: the kernel has cubic, not bbr\n")


def test_diff_of_the_cpu_limits_writes_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = CpuKernel(tmp_path, cores=2)
    (kernel.directory / "cpu.weight").write_text("100")
    locate, watch = cgroup.locate, sample.watch
    monkeypatch.setattr(cgroup, "locate", lambda server: locate(server, tmp_path))
    monkeypatch.setattr(
        sample,
        "watch",
        lambda group, seconds, **how: watch(
            group, seconds, **(how | {"clock": kernel.clock, "wait": kernel.wait, "proc": tmp_path})
        ),
    )
    monkeypatch.setattr(change, "plan", partial(change.plan, root=tmp_path))
    done = CliRunner().invoke(main, ["tune", "--seconds", "1", "--diff"])
    assert done.exit_code == 1, done.output
    assert "+CPUWeight=900" in done.stdout
    assert not (tmp_path / "etc").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--congestion", "--cap", "2"], "--cap is not for --congestion."),
        (["--congestion", "--unit", "a.service"], "--unit is not for --congestion."),
        (["--congestion", "--seconds", "5"], "--seconds is not for --congestion."),
        (["--rtt-ms", "100"], "--rtt-ms needs --congestion."),
        (["--loss-percent", "5"], "--loss-percent needs --congestion."),
        (["--congestion", "--diff", "--apply"], "--apply, --diff and --revert exclude each other."),
        (["--congestion", "--loss-percent", "0"], "0.0 is not in the range"),
        (["--congestion", "--rtt-ms", "nan"], "nan is not"),
        (["--congestion", "--apply"], "without a terminal it needs --yes"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["tune", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr.splitlines()[-1]
