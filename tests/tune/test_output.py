"""What `omniwatch tune` says of what it watched, in words and as JSON, and the command from the watching to the question."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.kernel import Kernel
from omniwatch.cli import main
from omniwatch.host import cgroup
from omniwatch.settings import Server
from omniwatch.tune import change, output, sample
from omniwatch.tune.advice import Advice, advise
from omniwatch.tune.model import Limit
from omniwatch.tune.sample import Watched

FRAME_S = 0.08
PUBLISHED = Limit(0.05, 0.1)


def watched(cores: float, threads: int = 2) -> Watched:
    return Watched(60, cores * 60, 600, 300, 0.07, windows=[cores * 0.1] * 600, threads=[threads] * 300)


def said(limit: Limit, cores: float, **asked: Any) -> tuple[str, Advice]:
    seen = watched(cores)
    advice = advise(seen, limit, cpus=12, frame_s=FRAME_S, has_burst=True, **asked)
    return "\n".join(output.as_text("qwen3-omni.service", seen, advice, 12, FRAME_S)), advice


def test_a_quota_that_hurts_is_shown_beside_what_to_set_instead() -> None:
    text, _ = said(PUBLISHED, 0.5, weight=100)
    assert text.splitlines()[:5] == [
        "qwen3-omni.service, watched for 60 s on 12 CPUs",
        "  CPU used       0.50 CPUs on average; ms in each 100 ms: p50 50.0, p95 50.0, p99 50.0, max 50.0",
        "  threads        2 run at once",
        "  stopped        in 50.0% of 600 quota periods; longest 70 ms",
        "  work a frame   40.0 ms of CPU in 80 ms; the quota sustains 40.0 ms: WILL DRIFT",
    ]
    assert re.search(r"now +quota 0\.50 CPUs in 100 ms +75 ms", text)
    assert re.search(r"recommended +no quota, weight 900 +0 ms", text)
    assert "\nwhy: " in text


def test_where_nothing_is_wrong_nothing_is_recommended() -> None:
    text, advice = said(Limit(None), 0.5, weight=900)
    assert "; no quota\n" in text
    assert text.endswith(f"nothing to change: {advice.reason}")
    assert "recommended" not in text


def test_a_cap_that_is_too_small_is_said_to_drift_all_the_same() -> None:
    text, _ = said(Limit(None), 1.9, cap=True, cap_cores=1.5)
    assert re.search(r"recommended +quota 1\.50 CPUs in \d+ ms, burst \d+ ms, weight", text)
    assert text.endswith("WILL DRIFT even so: frames need more CPU than this quota sustains")


def test_json_has_the_same_figures_in_seconds() -> None:
    _, advice = said(PUBLISHED, 0.5, weight=100)
    found = output.as_json("qwen3-omni.service", watched(0.5), advice, 12)
    assert (found["cpu_cores"], found["cpu_per_100ms_s"]["p99"], found["threads"]) == (0.5, 0.05, 2)
    assert found["now"]["quota_cores"] == 0.5
    assert found["now"]["blackout_s"] == pytest.approx(0.075)
    assert found["now"]["will_drift"] is True
    assert (found["recommended"]["quota_cores"], found["recommended"]["weight"]) == (None, 900)
    _, fine = said(Limit(None), 0.5, weight=900)
    assert output.as_json("qwen3-omni.service", watched(0.5), fine, 12)["recommended"] is None


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A server under the published quota, which the command finds and watches."""
    found = Kernel(tmp_path, cores=2)
    locate, watch = cgroup.locate, sample.watch

    def watched(group: cgroup.Group, seconds: float, **options: Any) -> Watched:
        return watch(
            group, seconds, **(options | {"clock": found.clock, "wait": found.wait, "proc": tmp_path})
        )

    monkeypatch.setattr(cgroup, "locate", lambda server: locate(server, tmp_path))
    monkeypatch.setattr(sample, "watch", watched)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
def test_the_command_watches_the_server_and_reports() -> None:
    text = CliRunner().invoke(main, ["tune", "--seconds", "5"])
    assert text.exit_code == 0, text.output
    assert "qwen3-omni.service, watched for 5 s on " in text.stdout
    assert re.search(r"now +quota 0\.50 CPUs in 100 ms", text.stdout)
    found = CliRunner().invoke(main, ["tune", "--seconds", "5", "--json", "--cap", "1.5"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["recommended"]["quota_cores"] == 1.5


@pytest.mark.usefixtures("kernel")
def test_a_unit_whose_limits_cannot_be_set_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.max").unlink()
    done = CliRunner().invoke(main, ["tune", "--seconds", "1"])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(
        "Error: qwen3-omni.service: the kernel's cpu controller is not active"
    )


def test_the_tighter_slice_is_watched_in_the_servers_place(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.directory / "cpu.max").write_text("max 100000")
    (kernel.directory.parent / "cpu.max").write_text("50000 100000")
    (kernel.directory.parent / "cpu.stat").symlink_to(kernel.directory / "cpu.stat")
    done = CliRunner().invoke(main, ["tune", "--seconds", "1"])
    assert done.exit_code == 0, done.output
    assert "system.slice, which qwen3-omni.service is in, has the tighter quota: it is watched" in done.stderr
    assert done.stdout.startswith("system.slice, watched for 1 s")
    assert cgroup.locate(Server())[0].name == "qwen3-omni.service"


@pytest.mark.parametrize(("taken", "code"), [("max 100000", 0), ("50000 100000", 1)])
def test_what_is_applied_is_shown_written_and_read_back(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str, code: int
) -> None:
    weight = kernel.directory / "cpu.weight"
    weight.write_text("100")

    def reload() -> None:
        weight.write_text("900")
        (kernel.directory / "cpu.max").write_text(taken)

    where = {"root": tmp_path, "reload": reload, "settle_s": 0}
    monkeypatch.setattr(change, "plan", partial(change.plan, root=tmp_path))
    monkeypatch.setattr(change, "apply", partial(change.apply, **where))
    done = CliRunner().invoke(main, ["tune", "--seconds", "1", "--apply", "--yes"])
    assert done.exit_code == code, done.output
    target = tmp_path / "etc/systemd/system/qwen3-omni.service.d/50-cpu.conf"
    assert "CPUQuota=\n" in target.read_text()
    assert "+CPUWeight=900" in done.stdout
    assert ("the kernel took it" in done.stdout) == (code == 0)
    assert ("qwen3-omni.service: " in done.stderr) == (code == 1)
