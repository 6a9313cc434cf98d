"""`omniwatch link` and `omniwatch bench resume` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.paths import CLONE
from omniwatch.cli import main
from omniwatch.desk.link.measure import Return, Run
from omniwatch.desk.link.summary import markdown, percentile, summarise


def omniwatch(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_scenarios_are_listed_with_what_they_are() -> None:
    listed = omniwatch("link", "--list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == sorted(
        path.stem for path in (CLONE / "deploy" / "link").glob("*.yaml")
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["link"], "--to HOST:PORT"),
        (["link", "--to", "nowhere"], "expected host:port, got 'nowhere'"),
        (["link", "--to", "127.0.0.1:99999"], "expected host:port"),
        (["link", "--to", "127.0.0.1:1", "--web.listen-address", "x"], "expected host:port, got 'x'"),
        (["link", "--to", "127.0.0.1:1", "--web.listen-address", "192.0.2.1:1"], "192.0.2.1:1: "),
        (["link", "--to", "127.0.0.1:1", "--scenario", "moon"], "moon: no such scenario; there are 4g-10pct"),
        (["bench", "resume", "--scenario", "moon"], "moon: no such scenario"),
        (["bench", "resume", "--seeds", "0"], "--seeds"),
        (["bench", "resume", "--minutes", "nan"], "--minutes"),
        (["bench", "resume", "--speed", "NaN"], "--speed"),
    ],
)
def test_a_users_error_is_one_line_and_exit_code_2(words: list[str], says: str) -> None:
    done = omniwatch(*words)
    assert done.exit_code == 2
    assert says in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("about: 2026-13-45\n", "line 1: a value cannot be read"),
        ("about: x\nrtt_ms: 0b_\n", "line 2: a value cannot be read"),
        ("[" * 3000, "line 1: nested more than 100 levels deep"),
        ("about: x\nrtt_ms: [\n", "line 2: did not find expected node content"),
        ("about: x\nrtt_ms: fast\n", "Expected `float`"),
        ("about: x\nrtt_ms: .inf\n", "Expected `float` <= 60000.0 - at `$.rtt_ms`"),
        ("about: x\ndown_kbit: 0.001\n", "must be 1 or more, or 0 for no limit"),
        ("about: x\noutage: {every_s: 3, for_s: 5}\n", "`for_s` must be less than `every_s`"),
        ("about: x\noutage: {every_s: 3, for_s: 3}\n", "`for_s` must be less than `every_s`"),
        ("about: x\ncuts: {every_s: 1.0e-9}\n", "Expected `float` >= 0.1 - at `$.cuts.every_s`"),
        (
            "about: x\nhandover: {per_minute: 1.0e+9, median_ms: 60, p95_ms: 250}\n",
            "at `$.handover.per_minute`",
        ),
    ],
)
def test_a_scenario_that_does_not_hold_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    for words in (["link", "--to", "127.0.0.1:1"], ["bench", "resume"]):
        done = omniwatch(*words, "--scenario", str(path))
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: odd.yaml: ")
        assert says in line


@pytest.mark.slow
def test_the_table_is_the_same_each_time_but_for_how_long_it_took(tmp_path: Path) -> None:
    found: list[Any] = []
    for number in range(2):
        out, table = tmp_path / f"{number}.json", tmp_path / f"{number}.md"
        words = ["--scenario", "4g-10pct", "--scenario", "datagrams", "--seeds", "1", "--minutes", "1"]
        done = omniwatch("bench", "resume", *words, "--out", str(out), "--markdown", str(table))
        assert done.exit_code == 0, done.output
        assert done.stdout == table.read_text()
        assert "Virtual time: " in done.stdout
        figures = json.loads(out.read_text())
        assert figures["virtual_time"] is True
        found.append(figures["scenarios"])
    assert found[0] == found[1]
    cut, datagrams = found[0]
    assert cut["scenario"] == "4g-10pct"
    assert cut["resumptions"] > 3
    assert cut["success"] == 1.0
    assert cut["turns"] == cut["turns_sample_for_sample"]
    assert datagrams["rtx"] > 0
    assert datagrams["never_heard"] > 0, "runs under three are given up"


def test_what_cannot_be_written_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    target = tmp_path / "no" / "such.json"
    done = omniwatch(
        "bench", "resume", "--scenario", "tunnel", "--seeds", "1", "--minutes", "0.1", "--out", str(target)
    )
    assert done.exit_code == 2
    assert "No such file or directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([5.0], 0.5) == 5.0
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([3, 1, 2], 0.5) == 2


def test_a_return_that_needed_no_server_is_no_resumption_and_a_turn_given_up_is_a_failed_one() -> None:
    def back(result: str, extra_ms: float) -> Return:
        return Return(result, 1000.0, 250.0, extra_ms, drift_ms=-30.0)

    first = Run("tunnel", 1, 5.0, turns=3, whole=2, failed={"gone": 1}, frames=10, lost=2)
    first.returns = [back("hit", 0.0), back("replay", 90.0), back("", 500.0)]
    second = Run("tunnel", 2, 5.0, turns=1, whole=1, returns=[back("hit", 30.0)], frames=10)
    row = summarise([first, second])
    assert (row["resumptions"], row["success"]) == (4, 0.75)
    assert row["replay"] == pytest.approx(1 / 3)
    assert (row["extra_mean_ms"], row["extra_p99_ms"]) == (40.0, 90.0)
    assert (row["came_back_by_itself"], row["never_heard"], row["drift_p99_ms"]) == (1, 2, 30.0)
    table = markdown([row], speed=2.0, took_s=1.0, congestion="bbr", codec="opus")
    assert "Congestion control: bbr. Speech: as many bytes as Opus takes, 3 kB/s." in table
    assert "| tunnel | 2 | 10 | 4 | 75.00 % | 33.3 % | 40.0 |" in table
    assert "Made at 2x they cover 3.0 s" in table
    assert "1 gone" in table


def test_help_shows_an_example() -> None:
    for words in (["link"], ["bench"], ["bench", "resume"]):
        shown = omniwatch(*words, "--help")
        assert shown.exit_code == 0
        assert "Example:" in shown.stdout
