"""`omniwatch bench chain` on the real vLLM-Omni, spoken to and speaking; beside a real cascade, in one table."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from omniwatch import events as ev
from omniwatch.desk.chain import Result
from omniwatch.desk.chain.results import read
from suites.chain.cascade import SHORT, cascade, speak_questions
from suites.chain.installation import OLDEST_PYTHON
from suites.chain.observer import Observer
from suites.omni.installation import Say
from suites.omni.server import Omni

TURNS, WARMUP = 8, 1
CASCADE_TURNS = 4
AGREES_S = 0.020
PATIENCE_S = 120
STREAM = "bench"
TOKENS = 12
BODY = {
    "sampling_params_list": [
        {"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True},
        {"temperature": 0.9, "top_k": 50, "seed": 42, "max_tokens": 40, "ignore_eos": True},
    ]
}
"""For the thinker and the talker: an answer of three chunks of speech."""
SPEECH = rb'"modality":"audio"[^\n]*\n'
"""The end of an event that holds speech."""


def bench(*words: object) -> str:
    command = [sys.executable, "-m", "omniwatch", "bench", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speak_questions(tmp_path_factory.mktemp("questions"))


@pytest.fixture(scope="module")
def native(omni: Omni, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Observer]:
    path = tmp_path_factory.mktemp("native") / "native.json"
    observer = Observer(f"http://127.0.0.1:{omni.port}")
    try:
        bench(
            "chain", questions, "--native", observer.url, f"--turns={TURNS}", f"--warmup={WARMUP}", f"--out={path}",
            f"--timeout={PATIENCE_S}",
            f"--body=native={json.dumps(BODY)}", f"--header=X-Omni-Stream:{STREAM}",
        )  # fmt: skip
    finally:
        observer.close()
    return path, observer


@pytest.fixture(scope="module")
def result(native: tuple[Path, Observer]) -> Result:
    return read(native[0])


def test_a_spoken_question_is_answered_in_text_and_speech(result: Result) -> None:
    assert len(result.turns) == TURNS
    for turn in result.turns:
        assert turn.outcome == "ok", turn.detail
        assert turn.text
        assert 0 < (turn.first_token_s or 0) <= (turn.first_audio_s or 0) <= (turn.end_s or 0)


def test_the_speech_and_the_tokens_are_those_that_were_sent(omni: Omni, result: Result) -> None:
    """Counted by the tap, which other tests hold against a client of the standard library."""
    events = omni.streams()[f"name={STREAM}"]
    asked = [event.turn for event in events if isinstance(event, ev.TurnStart)][WARMUP:]
    sent_s = [
        sum(event.dur_ms for event in events if isinstance(event, ev.Audio) and event.turn == turn) / 1000
        for turn in asked
    ]
    assert [turn.audio_s for turn in result.turns] == pytest.approx(sent_s, abs=1e-5)
    assert {turn.tokens for turn in result.turns} == {TOKENS}


def test_first_audio_agrees_with_the_wire(native: tuple[Path, Observer], result: Result, say: Say) -> None:
    seen = native[1].exchanges("/v1/chat/completions", SPEECH)[WARMUP:]
    apart = [
        (turn.first_audio_s or 0.0) - (spoken_t - asked_t)
        for turn, (asked_t, spoken_t) in zip(result.turns, seen, strict=True)
    ]
    say(
        f"  first audio, the benchmark's less the wire's: median {statistics.median(apart) * 1000:.1f} ms, "
        f"furthest {max(map(abs, apart)) * 1000:.1f} ms"
    )
    assert statistics.median(map(abs, apart)) < AGREES_S


@pytest.mark.skipif(sys.version_info < OLDEST_PYTHON, reason="the cascade's packages need Python 3.11")
def test_both_chains_are_one_table(
    native: tuple[Path, Observer], questions: Path, tmp_path: Path, say: Say
) -> None:
    with cascade(tmp_path / "logs") as servers:
        urls = [f"--{part}={server.url}" for part, server in servers.items()]
        bench(
            "chain", questions, *urls, f"--turns={CASCADE_TURNS}", f"--body=llm={SHORT}", f"--timeout={PATIENCE_S}",
            f"--out={tmp_path / 'cascade.json'}",
        )  # fmt: skip
    table = bench("merge", native[0], tmp_path / "cascade.json")
    say(table)
    head, failed, first = (
        next(line for line in table.splitlines() if word in line)
        for word in ("figure", "turns failed", "first audio (s)")
    )
    assert head.split() == ["figure", "native", "x1", "cascade", "x1"]
    assert f"0 of {TURNS} " in failed
    assert f"0 of {CASCADE_TURNS} " in failed
    # Eight turns bound a median on both sides, four do not.
    own, other = first.split("P50")[1].strip().split("  ")[0], first.rstrip()
    assert "..." not in own
    assert other.endswith("[..., ...]")
    assert "P99" not in table.split("Where the time")[0]
    for step in ("hear and think", "begin to speak", "ASR", "TTS"):
        assert step in table
