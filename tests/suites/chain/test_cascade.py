"""A hundred turns with a real cascade: the table, and its first audio against an observer on the wire."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omniwatch.desk.chain.results import read
from omniwatch.desk.child_process import ChildProcess
from suites.chain.cascade import SHORT, cascade, speak_questions
from suites.chain.observer import Observer

TURNS, WARMUP = 100, 2
AGREES_S = 0.020
PATIENCE_S = 120
"""A part that a busy machine holds up for 30 s, the default, has not failed."""


def omniwatch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omniwatch", *words], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def benchmark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> tuple[Path, dict[str, Observer], dict[str, ChildProcess], str]:
    folder = tmp_path_factory.mktemp("chain")
    questions = speak_questions(folder / "questions")
    with cascade(folder) as servers:
        observers = {part: Observer(server.url) for part, server in servers.items()}
        watches = [f"--watch=cascade={server.process.pid}" for server in servers.values()]
        urls = [f"--{part}={observer.url}" for part, observer in observers.items()]
        done = omniwatch(
            "bench", "chain", str(questions), *urls, *watches, f"--turns={TURNS}", f"--warmup={WARMUP}",
            f"--timeout={PATIENCE_S}", f"--body=llm={SHORT}", f"--out={folder / 'cascade.json'}", f"--plot={folder / 'cascade.svg'}",
        )  # fmt: skip
        for observer in observers.values():
            observer.close()
    assert done.returncode == 0, done.stdout + done.stderr
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{done.stdout}")
    return folder / "cascade.json", observers, servers, done.stdout


def test_every_turn_is_spoken_and_timed_in_order(benchmark: Any) -> None:
    turns = read(benchmark[0]).turns
    assert len(turns) == TURNS
    for turn in turns:
        assert turn.outcome == "ok", turn.detail
        times = [turn.transcript_s, turn.first_token_s, turn.first_sentence_s, turn.first_audio_s, turn.end_s]
        assert times == sorted(times)
        assert turn.audio_s > 0.5


def test_first_audio_agrees_with_the_wire(benchmark: Any, pytestconfig: pytest.Config) -> None:
    path, observers, *_ = benchmark
    asked = observers["asr"].exchanges("/v1/audio/transcriptions")[WARMUP:]
    spoken = observers["tts"].exchanges("/v1/audio/speech")
    turns = read(path).turns
    assert len(asked) == len(turns)
    apart = []
    for (question_t, _), turn in zip(asked, turns, strict=True):
        first_t = min(t for sent_t, t in spoken if sent_t > question_t)
        apart.append(turn.first_audio_s - (first_t - question_t))
    median, worst = statistics.median(map(abs, apart)), max(map(abs, apart))
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(
            f"\nfirst audio against the wire: median {median * 1e3:.2f} ms, worst {worst * 1e3:.1f} ms\n"
        )
    assert median <= AGREES_S


def test_the_table_has_intervals_and_says_what_they_cannot(benchmark: Any) -> None:
    table = benchmark[3]
    for percent in ("P50", "P90", "P99"):
        line = next(x for x in table.splitlines() if "first audio" in x and percent in x)
        assert "[" in line
    assert "...]" in line
    assert "below 368 its upper end is open" in table


def test_what_the_servers_hold_is_read(benchmark: Any) -> None:
    """The three models are some 200 to 400 MB each in memory."""
    memory = read(benchmark[0]).memory
    assert len(memory) == 3
    for one in memory:
        assert one.held_bytes is not None
        assert one.before_bytes is not None
        assert 100e6 < one.before_bytes <= one.held_bytes < 1e9
    assert json.loads(benchmark[0].read_text())["figures"][0]["turns"] == TURNS
