"""The commands: what they print and write, what they refuse, results put together and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import jsonschema
import msgspec
import pytest

from helpers.made_up_servers import wav
from helpers.paths import CLONE
from omniwatch.cli import main
from omniwatch.desk.chain import Level, Question, Result, Turn, tables
from omniwatch.desk.chain import results as files
from omniwatch.desk.chain.compare import DIFFERENT, NOT_SHOWN, compare
from omniwatch.desk.chain.schedule import plan


def bench(*words: Any) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["bench", *map(str, words)])


def result(
    chain: str = "native", times: list[float] | None = None, concurrency: int = 1, **further: Any
) -> Result:
    times = times or [0.5 + n / 1000 for n in range(100)]
    turns = [
        Turn(
            chain=chain,  # type: ignore[arg-type]
            concurrency=concurrency,
            number=n,
            question="q",
            start_s=n,
            outcome="ok",
            first_token_s=t / 2,
            first_audio_s=t,
            end_s=t + 1,
            audio_s=2.0,
            tokens=11,
            text_s=0.5,
        )
        for n, t in enumerate(times)
    ]
    level = Level(chain=chain, concurrency=concurrency, start_s=0, end_s=100)  # type: ignore[arg-type]
    made: dict[str, Any] = {
        "tool": "t", "began": "2026-01-01", "seed": 1, "machine": {}, "servers": {}, "models": {},
        "settings": {"buffer_ms": 80.0}, "questions": [Question(name="q", sha256="0", audio_s=1.0)],
        "levels": [level], "turns": turns,
    }  # fmt: skip
    return Result(**{**made, **further})


def written(path: Path, one: Result) -> Path:
    files.write(path, one)
    return path


def test_a_result_is_read_back_and_fits_the_schema(tmp_path: Path) -> None:
    path = written(tmp_path / "r.json", result())
    back = files.read(path)
    assert back.turns == result().turns
    committed = json.loads((CLONE / "docs/bench-chain.schema.json").read_text())
    assert committed == json.loads(files.schema()), "run `make schema`"
    jsonschema.validate(json.loads(path.read_text()), committed)


def test_results_are_merged_into_one_table(tmp_path: Path) -> None:
    native = written(tmp_path / "native.json", result("native"))
    cascade = written(tmp_path / "cascade.json", result("cascade", [1.0 + n / 1000 for n in range(100)]))
    done = bench("merge", native, cascade, "--out", tmp_path / "both.json", "--markdown", tmp_path / "t.md")
    assert done.exit_code == 0, done.output
    head, line = (
        next(x for x in done.output.splitlines() if word in x) for word in ("native x1", "first audio")
    )
    assert "cascade x1" in head
    # Ranks 40 and 61 of 100 hold a median.
    assert "0.549 [0.539, 0.560]" in line or "0.550 [0.539, 0.560]" in line
    assert "| first audio (s) | P99 |" in (tmp_path / "t.md").read_text()
    assert len(files.read(tmp_path / "both.json").turns) == 200
    again = bench("merge", native, native)
    assert again.exit_code == 2
    assert "native x1 is in" in again.output


@pytest.mark.parametrize(
    ("turns", "p99"),
    [
        (99, "n=99: too few"),
        (100, "1.000 [1.000, ...]"),
        (367, "1.000 [1.000, ...]"),
        (368, "1.000 [1.000, 1.000]"),
    ],
)
def test_the_table_marks_a_p99_of_few_turns(turns: int, p99: str) -> None:
    few = result("native", [1.0] * turns)
    both = msgspec.structs.replace(few, turns=[*few.turns, *result("cascade", [1.0] * 400).turns])
    (line,) = (x for x in tables.terminal(both).splitlines() if "first audio" in x and "P99" in x)
    assert line.split("  P99")[1].strip().startswith(p99)
    marked = f"The smallest column has {turns}." in "\n".join(tables.notes(both))
    assert marked == (turns < 368)


def test_a_row_that_no_column_can_fill_is_left_out() -> None:
    few = tables.terminal(result(times=[1.0] * 99))
    assert not [x for x in few.splitlines() if x.startswith("  ") and "P99" in x]


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.slow
def test_a_result_is_drawn(tmp_path: Path, ending: str) -> None:
    native = written(tmp_path / "native.json", result())
    assert bench("merge", native, "--plot", tmp_path / f"p.{ending}").exit_code == 0
    assert (tmp_path / f"p.{ending}").stat().st_size > 5000
    refused = bench("merge", native, "--plot", tmp_path / "p.txt")
    assert (refused.exit_code, (tmp_path / "p.txt").exists()) == (2, False)


def test_runs_of_other_questions_are_not_merged(tmp_path: Path) -> None:
    one = written(tmp_path / "1.json", result())
    other = [Question(name="q", sha256="1", audio_s=1.0)]
    two = written(tmp_path / "2.json", result("cascade", questions=other))
    done = bench("merge", one, two)
    assert done.exit_code == 2
    assert "asks other questions" in done.output


def test_vllms_own_result_is_a_column_that_says_what_it_lacks(tmp_path: Path) -> None:
    """Names and units as vLLM-Omni 0.30's patch writes them."""
    theirs = {
        "backend": "openai-chat-omni", "model_id": "qwen", "completed": 98, "failed": 2, "max_concurrency": 4,
        "audio_throughput": 1.5, "output_throughput": 55.0, "p99_audio_ttfp_ms": 900.0, "p50_audio_ttfp_ms": 400.0,
        "p50_e2el_ms": 5000.0, "p99_audio_underrun_s": 0.0,
    }  # fmt: skip
    (tmp_path / "vllm.json").write_text(json.dumps(theirs))
    done = bench("merge", written(tmp_path / "r.json", result()), "--vllm", tmp_path / "vllm.json")
    assert done.exit_code == 0, done.output
    lines = {tuple(x.split("  ")[1:2]): x for x in done.output.splitlines()}
    assert lines
    p50 = next(x for x in done.output.splitlines() if "first audio" in x and "P50" in x)
    assert p50.rstrip().endswith("0.400")
    assert "2 of 100" in done.output
    assert "the chat path never measures it" in done.output
    assert "tried again" in done.output
    silence = next(x for x in done.output.splitlines() if "silence while" in x and "P99" in x)
    assert silence.rstrip().endswith("-")
    (tmp_path / "no.json").write_text("{}")
    assert bench("merge", "--vllm", tmp_path / "no.json").exit_code == 2


@pytest.mark.slow
def test_comparing_finds_what_differs_and_no_more(tmp_path: Path) -> None:
    same = result(times=[0.5 + (n * 37 % 100) / 1000 for n in range(100)])
    faster = result(times=[0.3 + n / 1000 for n in range(100)])
    alike = {d.figure: d.verdict for d in compare(result(), same)}
    apart = {d.figure: d for d in compare(result(), faster)}
    assert set(alike.values()) == {NOT_SHOWN}
    assert apart["first audio (s) P50"].verdict == DIFFERENT
    assert apart["first audio (s) P90"].verdict == DIFFERENT
    # A P99 of 100 turns has no upper end: nothing is below it for certain.
    assert apart["first audio (s) P99"].verdict == NOT_SHOWN
    low, high = apart["first audio (s) P50"].low, apart["first audio (s) P50"].high
    assert low is not None
    assert high is not None
    assert low < -0.2 < high < 0
    paths = [written(tmp_path / f"{n}.json", r) for n, r in enumerate((result(), faster))]
    done = bench("compare", *paths)
    assert done.exit_code == 0
    assert DIFFERENT in done.output
    assert json.loads(bench("compare", *paths, "--json").output)[0]["verdict"] == NOT_SHOWN


def test_two_runs_of_one_chain_each_are_compared_across() -> None:
    found = list(compare(result("native"), result("cascade", [2.0] * 100)))
    assert {d.column for d in found} == {"native/cascade x1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "neither is given"),
        (["--asr", "http://x", "--llm", "http://x"], "--tts missing"),
        (["--native", "ws://x"], "--native: expected http://HOST:PORT"),
        (["--native", "http://x", "--model", "asr=a"], "asr is not asked"),
        (["--native", "http://x", "--body", "native={"], "--body native: no JSON"),
        (["--native", "http://x", "--body", "native=[]"], "expected a JSON object"),
        (["--native", "http://x", "--concurrency", "1,1"], "--concurrency: expected numbers"),
        (["--native", "http://x", "--concurrency", "0"], "--concurrency: expected numbers"),
        (["--native", "http://x", "--header", "x"], "--header: expected NAME:VALUE"),
        (["--native", "http://x", "--watch", "native=999999999"], "no such process"),
        (["--native", "http://x", "--plot", "x.txt"], "--plot x.txt: expected"),
        (["--native", "http://127.0.0.1:1"], "--native http://127.0.0.1:1: cannot reach it"),
    ],
)
def test_what_the_user_can_mend_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "q.wav").write_bytes(wav(0.5))
    done = bench("chain", tmp_path, *words, "--out", tmp_path / "out.json")
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("content", "said"), [(None, "no *.wav in it"), (b"RIFF", "not a WAV"), (b"hello", "not a WAV")]
)
def test_questions_that_are_none_are_said(content: bytes | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "q.wav").write_bytes(content)
    done = bench("chain", tmp_path, "--native", "http://127.0.0.1:1")
    assert done.exit_code == 2
    assert said in done.output


def test_a_schedule_is_fair_and_drawn_by_the_seed() -> None:
    blocks = plan(["native", "cascade"], [1, 4], 40, 7, 3, 11)
    assert blocks == plan(["native", "cascade"], [1, 4], 40, 7, 3, 11)
    assert blocks != plan(["native", "cascade"], [1, 4], 40, 7, 3, 12)
    for level in (1, 4):
        own = [b for b in blocks if b.concurrency == level and b.first >= 0]
        asked = {
            chain: [q for b in sorted(own, key=lambda b: b.first) if b.chain == chain for q in b.questions]
            for chain in ("native", "cascade")
        }
        assert asked["native"] == asked["cascade"]
        assert len(asked["native"]) == 40
        assert sorted(asked["native"][:7]) == list(range(7))
        first = {own[n].chain for n in range(0, len(own), 2)}
        assert len(own) == (80 if level == 1 else 6)
        assert level > 1 or first == {"native", "cascade"}
