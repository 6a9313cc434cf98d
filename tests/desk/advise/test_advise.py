"""Advice: each candidate with the number that decided, and nothing guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from omniwatch.cli import main
from omniwatch.desk.advise import Constraints, Facts, Figure, advise, judge
from omniwatch.desk.advise.facts import gather
from omniwatch.desk.chain import Level, Result, Turn
from omniwatch.desk.chain.results import write


def figure(value: float, low: float | None = None, high: float | None = None) -> Figure:
    return Figure(value=value, low=low, high=high, source="here")


def facts(memory: float, first: Figure) -> Facts:
    return Facts(
        memory_gb=figure(memory), first_audio_s=first, first_token_s=first, audio_rate=figure(2, 1.5, 3)
    )


SITE = Constraints(memory_gb=64, cloud_memory_gb=80, red_line_s=0.75)


def test_the_nearest_miss_comes_first_and_the_number_that_decided_is_named() -> None:
    found = advise(
        SITE,
        {
            "cloud-native": facts(90, figure(0.5, 0.4, 0.6)),
            "edge-int4": facts(30, figure(0.9, 0.8, 1.0)),
            "thinker-only": facts(20, figure(0.5, 0.4, 0.74)),
            "cascade": facts(10, figure(1.9, 1.8, 2.0)),
        },
    )
    assert [one.name for one in found] == ["thinker-only", "cloud-native", "edge-int4", "cascade"]
    assert [one.verdict for one in found] == ["passes", "fails", "fails", "fails"]
    assert [one.decides for one in found] == [
        "first token P90",
        "memory",
        "first audio P90",
        "first audio P90",
    ]
    assert found[1].checks[0].excess == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (figure(0.7, 0.6, 0.75), "passes"),
        (figure(0.7, 0.6, 0.76), "undecided"),
        (figure(0.8, 0.74, 0.9), "undecided"),
        (figure(0.8, 0.76, 0.9), "fails"),
        (figure(0.7), "passes"),
    ],
)
def test_an_interval_across_the_line_decides_nothing(first: Figure, verdict: str) -> None:
    found = judge("edge-int4", SITE, facts(30, first))
    assert found.verdict == verdict
    if verdict == "undecided":
        assert "with more turns" in (found.checks[1].measure or "")


def test_what_nobody_measured_is_not_guessed() -> None:
    """Memory is computed for the model; of the cascade nothing is known, and nobody's speed is."""
    found = {one.name: one for one in advise(SITE, gather(SITE, {}, {}))}
    assert found["edge-int4"].checks[0].verdict == "passes"
    assert "omniwatch plan --quantization int4" in (found["edge-int4"].checks[0].source or "")
    assert found["cloud-native"].checks[0].value == pytest.approx(80, abs=6)
    for one in found.values():
        missing = [check for check in one.checks if check.verdict == "not measured"]
        assert missing
        assert all(check.value is None and check.measure for check in missing)
    assert found["cascade"].checks[0].verdict == "not measured"
    assert "--asr URL" in (found["cascade"].checks[0].measure or "")


def test_a_result_counts_only_at_its_number_of_streams(tmp_path: Path) -> None:
    turns = [
        Turn(
            chain="native", concurrency=2, number=n, question="q", start_s=0.0, outcome="ok",
            first_token_s=0.2, first_audio_s=0.3 + n / 1000, end_s=1.0, audio_s=2.0,
        )
        for n in range(100)
    ]  # fmt: skip
    result = Result(
        tool="t", began="", seed=1, machine={}, servers={}, models={}, settings={}, questions=[],
        levels=[Level(chain="native", concurrency=2, start_s=0.0, end_s=100.0)], turns=turns,
    )  # fmt: skip
    path = tmp_path / "orin.json"
    write(path, result)

    def verdicts(*words: Any) -> dict[str, Any]:
        done = click.testing.CliRunner().invoke(main, ["advise", "--json", *map(str, words)])
        return {one["name"]: one for one in json.loads(done.stdout)}

    two = verdicts("--memory-gb", 64, "--red-line-ms", 750, "--streams", 2, "--measured", f"edge-int4={path}")
    assert two["edge-int4"]["verdict"] == "passes"
    assert two["edge-int4"]["checks"][1]["value"] == pytest.approx(0.3891)
    one = verdicts("--memory-gb", 64, "--red-line-ms", 750, "--measured", f"edge-int4={path}")
    assert one["edge-int4"]["verdict"] == "not measured"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected a limit"),
        (["--memory-gb", "64", "--price", "edge=1"], "--price: expected cloud-native"),
        (["--memory-gb", "64", "--price", "cascade=x"], "expected a number"),
        (["--memory-gb", "64", "--measured", "cascade=/nonexistent"], "/nonexistent: No such file"),
    ],
)
def test_what_the_user_can_mend_is_one_line(words: list[str], said: str) -> None:
    done = click.testing.CliRunner().invoke(main, ["advise", *words])
    assert done.exit_code == 2
    assert said in done.output


def test_the_exit_code_says_whether_a_candidate_passes() -> None:
    done = click.testing.CliRunner().invoke(
        main, ["advise", "--memory-gb", "64", "--cost", "3", "--price", "cascade=9"]
    )
    assert done.exit_code == 1
    assert "cost an hour: fails: 9, limit 3 (--price)" in done.output
