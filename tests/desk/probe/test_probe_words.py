"""Words: what was heard, written down by a speech recognition, against the text that came with it."""

from __future__ import annotations

import http.server
import io
import json
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.uvicorn_server import Serving, Speaker, speech, text, wait
from omniwatch.cli import main
from omniwatch.desk.probe.words import word_error_rate, words_of

WORDS = st.lists(st.sampled_from(["one", "two", "three", "four"]), max_size=8)


@contextmanager
def recognition(heard: str, status: int = 200) -> Iterator[tuple[str, list[bytes]]]:
    """A speech recognition that hears the same each time; gives its address and the files it was sent."""
    files: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            files.append(body[body.index(b"RIFF") : body.rindex(b"\r\n--")])
            content = json.dumps({"text": heard}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", files
    finally:
        server.shutdown()
        server.server_close()


def probed(
    scheme: str, heard: str, *words: str, status: int = 200
) -> tuple[click.testing.Result, list[bytes]]:
    spoken = [text("The sky is blue, "), speech(200), wait(0.05), text("most days."), speech(300)]
    with Serving(Speaker(spoken)) as server, recognition(heard, status) as (url, files):
        command = ["probe", f"{scheme}://{server.authority}", "--turns=1", f"--asr={url}", *words]
        return click.testing.CliRunner().invoke(main, command), files


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_words_that_differ_are_counted(scheme: str) -> None:
    """One word repeated, one missing, of six."""
    result, files = probed(scheme, "the sky is is blue days", "--json", "--max-wer=20")
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    (turn,) = document["turns"]
    assert turn["words"]["said"] == "The sky is blue, most days."
    assert (turn["words"]["errors"], turn["words"]["count"]) == (2, 6)
    assert turn["words"]["rate"] == pytest.approx(0.333, abs=0.001)
    assert document["exceeded"] == ["turn 1: word error rate 33.3%, past 20 %"]
    with wave.open(io.BytesIO(files[0])) as sound:
        assert sound.getnframes() / sound.getframerate() == pytest.approx(0.5)


def test_the_table_has_a_column_for_words() -> None:
    result, _ = probed("http", "The sky is blue most days", "--max-wer=0")
    assert result.exit_code == 0, result.output
    head, row = result.output.splitlines()[:2]
    assert head.endswith("words wrong")
    assert row.endswith("0.0%")
    assert len(head) == len(row)


def test_a_recognition_that_fails_is_said() -> None:
    result, _ = probed("http", "", "--max-wer=10", status=500)
    assert result.exit_code == 1
    assert "turn 1: not transcribed: POST /v1/audio/transcriptions: 500" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--asr", "ws://127.0.0.1"], "--asr: expected http://HOST:PORT"),
        (["--asr", "x"], "--asr: expected http://HOST:PORT"),
        (["--max-wer", "5"], "--max-wer: needs --asr"),
        (["--asr", "http://127.0.0.1", "--interval", "5"], "--asr: not with --interval"),
    ],
)
def test_what_does_not_go_together_is_one_line(words: list[str], said: str) -> None:
    result = click.testing.CliRunner().invoke(main, ["probe", "http://127.0.0.1:1", *words])
    assert result.exit_code == 2
    assert said in result.output


@given(WORDS, WORDS)
def test_the_distance_is_one(first: list[str], second: list[str]) -> None:
    """Not below the difference of lengths, not above the longer; 0 only for the same; the same both ways."""
    errors, count = word_error_rate(" ".join(first), " ".join(second))
    assert count == len(first)
    assert abs(len(first) - len(second)) <= errors <= max(len(first), len(second))
    assert (errors == 0) == (first == second)
    assert errors == word_error_rate(" ".join(second), " ".join(first))[0]


def test_words_are_compared_without_case_and_points() -> None:
    assert words_of("Don’t stop, please!") == ["don't", "stop", "please"]
    assert words_of("天空 blue") == ["天", "空", "blue"]
