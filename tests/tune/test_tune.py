"""The formulas, the watching, the advice, the drop-in, and what the command refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.kernel import Kernel
from helpers.trees import grow
from omniwatch.cli import main
from omniwatch.host.cgroup import locate
from omniwatch.settings import Server
from omniwatch.tune import model
from omniwatch.tune.advice import WEIGHT, advise
from omniwatch.tune.model import Limit
from omniwatch.tune.sample import Watched, WatchError, percentile, runnable_threads, watch

MS = 0.001
FRAME_S = 0.08
PUBLISHED = Limit(0.05, 0.1)


@pytest.mark.parametrize(("threads", "stopped_ms"), [(1, 50), (2, 75), (4, 87.5), (12, 95.8)])
def test_a_quota_of_half_a_cpu_stops_the_server_for_up_to_96_ms(threads: int, stopped_ms: float) -> None:
    assert model.blackout_s(PUBLISHED, threads) / MS == pytest.approx(stopped_ms, abs=0.05)


@pytest.mark.parametrize(
    ("quota_ms", "period_ms", "work_ms", "threads", "worst_ms"),
    [
        # Model and measurement (in parentheses) of the same load in the kernel.
        (50, 100, 30, 2, 90),  # (87)
        (50, 100, 41, 1, 91),  # (95)
        (50, 100, 60, 2, 180),  # (181)
        (10, 20, 30, 2, 60),  # (61)
        (5, 10, 30, 2, 60),  # (63)
        (150, 100, 60, 2, 30 + 25),
        (200, 100, 60, 2, 30),
    ],
)
def test_the_worst_frame(
    quota_ms: float, period_ms: float, work_ms: float, threads: int, worst_ms: float
) -> None:
    limit = Limit(quota_ms * MS, period_ms * MS)
    assert model.response_s(limit, threads, work_ms * MS) / MS == pytest.approx(worst_ms)


def test_without_a_quota_nothing_stops_and_a_frame_takes_its_work() -> None:
    free = Limit(None)
    assert model.blackout_s(free, 12) == 0
    assert model.response_s(free, 2, 30 * MS) == 15 * MS
    assert not model.will_drift(free, 10, FRAME_S)
    assert model.lateness_growth(free, 10, FRAME_S) == 0


def test_half_a_thousandth_too_much_is_300_ms_in_ten_minutes() -> None:
    sustained = model.sustained_s(PUBLISHED, FRAME_S)
    assert sustained == pytest.approx(40 * MS)
    assert model.lateness_growth(PUBLISHED, sustained * 1.0005, FRAME_S) * 600 == pytest.approx(0.3)


def test_will_drift_is_said_above_90_percent_of_what_the_quota_sustains() -> None:
    assert not model.will_drift(PUBLISHED, 36 * MS, FRAME_S)
    assert model.will_drift(PUBLISHED, 36.1 * MS, FRAME_S)


@pytest.mark.parametrize(("threads", "cores"), [(4, 3.2), (12, 9.6)])
def test_the_quota_that_stops_nobody_longer_than_20_ms(threads: int, cores: float) -> None:
    quota = model.quota_for(threads, 0.1, 20 * MS)
    assert quota / 0.1 == pytest.approx(cores)
    assert model.blackout_s(Limit(quota, 0.1), threads) == pytest.approx(20 * MS)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0, 0.5, 0.95, 0.99, 1)] == [1, 50, 95, 99, 100]
    assert percentile([], 0.5) == 0


def test_threads_that_run_or_want_to_are_counted(tmp_path: Path) -> None:
    for pid, task, stat in (
        (7, 7, "7 (vllm) R 1 7"),
        (7, 8, "8 (a) R b) S 1 7"),
        (7, 9, "9 (x) S (y) R 1 7"),
        (9, 9, "9 (other) D 1 7"),
    ):
        grow(tmp_path, f"{pid}/task/{task}/stat: {stat}")
    assert runnable_threads([7, 9, 4711], tmp_path) == 2


@pytest.mark.slow
def test_watching_a_throttled_group(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=2)
    told: list[float] = []
    seen = watch(
        locate(Server(), tmp_path)[0],
        10,
        clock=kernel.clock,
        wait=kernel.wait,
        progress=told.append,
        proc=tmp_path,
    )
    assert seen.seconds == pytest.approx(10, abs=0.02)
    assert seen.cores == pytest.approx(0.5, rel=0.02)
    assert seen.throttled_share == pytest.approx(1, abs=0.02)
    assert seen.longest_stop_s == pytest.approx(0.075, abs=0.006)
    assert percentile(seen.windows, 0.5) == pytest.approx(0.05, rel=0.05)
    assert told[-1] == pytest.approx(10, abs=0.11)


def test_a_watcher_that_was_not_let_run_itself_makes_no_stop_longer(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=2)
    seen = watch(
        locate(Server(), tmp_path)[0],
        10,
        clock=kernel.clock,
        wait=lambda seconds: kernel.wait(1.5 if 104 < kernel.now < 105 else seconds),
        proc=tmp_path,
    )
    assert seen.longest_stop_s == pytest.approx(0.075, abs=0.006)


@pytest.mark.slow
def test_an_idle_pause_is_not_a_stop(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=2)
    seen = watch(
        locate(Server(), tmp_path)[0],
        5,
        clock=kernel.clock,
        wait=lambda seconds: (kernel.wait(seconds), setattr(kernel, "throttled", 0), kernel.write()),
        proc=tmp_path,
    )
    assert seen.longest_stop_s == 0


def test_a_server_that_ends_while_it_is_watched(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=1)

    def gone(seconds: float) -> None:
        kernel.wait(seconds)
        (kernel.directory / "cpu.stat").unlink(missing_ok=True)

    with pytest.raises(
        WatchError, match=r"qwen3-omni\.service: its CPU time cannot be read; has the server ended\?"
    ):
        watch(locate(Server(), tmp_path)[0], 5, clock=kernel.clock, wait=gone, proc=tmp_path)


@pytest.mark.parametrize("counter", ["usage_usec", "nr_periods", "nr_throttled"])
def test_a_server_that_is_started_again_within_a_tick(tmp_path: Path, counter: str) -> None:
    kernel = Kernel(tmp_path, cores=1)
    stat = kernel.directory / "cpu.stat"

    def anew(seconds: float) -> None:
        kernel.wait(seconds)
        if kernel.now > 101:
            stat.write_text(re.sub(rf"{counter} \d+", f"{counter} 3", stat.read_text()))

    with pytest.raises(WatchError, match=r"qwen3-omni\.service: its counters began anew"):
        watch(locate(Server(), tmp_path)[0], 5, clock=kernel.clock, wait=anew, proc=tmp_path)


def watched(cores: float, threads: int, window_ms: float | None = None) -> Watched:
    use = cores * 100 if window_ms is None else window_ms
    return Watched(60, cores * 60, 600, 300, 0.07, windows=[use * MS] * 600, threads=[threads] * 300)


def test_the_advice_is_no_quota_and_a_weight() -> None:
    advice = advise(watched(0.5, 2), PUBLISHED, cpus=12, frame_s=FRAME_S, has_burst=True, weight=100)
    assert advice.now.drifts
    assert advice.now.blackout_s == pytest.approx(75 * MS)
    assert advice.recommended is not None
    assert advice.recommended.limit.quota_s is None
    assert (advice.recommended.blackout_s, advice.recommended.drifts, advice.weight) == (0, False, WEIGHT)


def test_nothing_is_advised_where_nothing_is_wrong() -> None:
    advice = advise(watched(0.5, 2), Limit(None), cpus=12, frame_s=FRAME_S, has_burst=True, weight=WEIGHT)
    assert advice.recommended is None
    assert "nothing to mend" in advice.reason


def test_a_demanded_cap_holds_both_conditions() -> None:
    advice = advise(watched(0.6, 4, 200), PUBLISHED, cpus=12, frame_s=FRAME_S, has_burst=True, cap=True)
    assert advice.recommended is not None
    limit = advice.recommended.limit
    assert limit == Limit(0.32, 0.1, 0.32), (
        "4 threads and 20 ms need 320 %; 1.5 times 200 ms in 100 ms only 300 %"
    )
    assert advice.recommended.blackout_s <= 20 * MS
    busier = advise(watched(3, 4, 380), PUBLISHED, cpus=12, frame_s=FRAME_S, has_burst=True, cap=True)
    assert busier.recommended is not None
    assert busier.recommended.limit.cores == pytest.approx(5.7)


def test_without_burst_a_cap_has_a_short_period() -> None:
    """JetPack 5's kernel."""
    advice = advise(watched(1, 4, 150), PUBLISHED, cpus=12, frame_s=FRAME_S, has_burst=False, cap=True)
    assert advice.recommended is not None
    assert advice.recommended.limit == Limit(pytest.approx(0.046), 0.02, 0)
    assert advice.recommended.blackout_s <= 20 * MS


def test_a_cap_never_exceeds_the_device() -> None:
    advice = advise(watched(1, 12, 190), PUBLISHED, cpus=2, frame_s=FRAME_S, has_burst=True, cap=True)
    assert advice.threads == 2
    assert advice.recommended is not None
    assert advice.recommended.limit.cores == 2


def test_a_limit_is_not_lowered_by_itself() -> None:
    roomy = Limit(0.8, 0.1)
    advice = advise(watched(0.5, 2, 60), roomy, cpus=12, frame_s=FRAME_S, has_burst=True, cap=True)
    assert advice.recommended is None
    assert "not lowered" in advice.reason
    asked = advise(
        watched(0.5, 2, 60), roomy, cpus=12, frame_s=FRAME_S, has_burst=True, cap=True, cap_cores=2
    )
    assert asked.recommended is not None
    assert asked.recommended.limit.cores == 2


@pytest.mark.parametrize(
    ("limit", "has_burst", "wanted"),
    [(Limit(0.8, 0.1), False, Limit(0.16, 0.02)), (Limit(10, 1.0), True, Limit(1.0, 0.1, 1.0))],
    ids=["no burst", "long period"],
)
def test_a_quota_that_stops_too_long_keeps_its_cpus(limit: Limit, has_burst: bool, wanted: Limit) -> None:
    advice = advise(watched(0.2, 12), limit, cpus=12, frame_s=FRAME_S, has_burst=has_burst, cap=True)
    assert advice.now.blackout_s > 20 * MS
    assert advice.recommended is not None
    assert advice.recommended.limit == wanted


def test_a_weight_is_not_lowered() -> None:
    advice = advise(watched(0.5, 2), PUBLISHED, cpus=12, frame_s=FRAME_S, has_burst=True, weight=5000)
    assert advice.weight == 5000


def test_a_cap_that_is_too_small_says_so() -> None:
    advice = advise(
        watched(1.9, 4), Limit(None), cpus=12, frame_s=FRAME_S, has_burst=True, cap=True, cap_cores=2
    )
    assert advice.recommended is not None
    assert advice.recommended.drifts


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--unit", "not-there.service", "--seconds", "1"], "not-there.service: no cgroup of this name"),
        (
            ["--unit", "no/unit"],
            '--unit: expected the name of a unit, such as qwen3-omni.service, got "no/unit"',
        ),
        *(
            (["--cap", cap], f'--cap: expected a number of CPUs, at least 0.01, got "{cap}"')
            for cap in ("many", "inf", "nan", "0.004")
        ),
        (["--apply"], "without a terminal it needs --yes"),
        (["--apply", "--revert"], "exclude each other"),
        (["--config.file", "/not/there.yaml"], "/not/there.yaml: No such file or directory"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main, ["tune", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
