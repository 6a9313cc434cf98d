"""The questions of `bench chain`: a WAV file each, its words and its picture beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.odd_files import ENDLESS, KINDS
from omniwatch.cli import main
from omniwatch.desk.chain import questions
from omniwatch.media import wav


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one question of a second."""
    (tmp_path / "a.wav").write_bytes(wav.header(16_000, 1, 32_000) + bytes(32_000))
    return tmp_path


def bench(folder: Path) -> str:
    """Have the command read the questions; returns the line it refuses them with."""
    done = CliRunner().invoke(main, ["bench", "chain", str(folder), "--native", "http://127.0.0.1:9"])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    return done.stderr


def test_a_question_has_its_words(folder: Path) -> None:
    (folder / "a.txt").write_text("你好\n", encoding="utf-8")
    (asked,) = questions.read(folder)
    assert (asked.name, asked.text, asked.audio_s) == ("a", "你好", 1.0)


def test_words_that_are_no_utf8_are_one_line(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"\xc4\xe3\xba\xc3\xff")
    assert bench(folder) == f"Error: {folder / 'a.txt'}: not UTF-8: invalid continuation byte\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["b.wav", "a.txt", "a.png"])
def test_what_is_no_file_is_not_waited_for(folder: Path, name: str, kind: str) -> None:
    KINDS[kind](folder / name)
    assert bench(folder).startswith(f"Error: {folder / name}: ")


@pytest.mark.parametrize("name", ["b.wav", "a.txt", "a.png"])
def test_a_file_without_an_end_is_one_line(folder: Path, name: str) -> None:
    ENDLESS(folder / name)
    assert f"{folder / name}: longer than" in bench(folder)
