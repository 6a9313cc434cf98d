"""Answers are kept a line each, and those of another model or question are refused; their speech is transcribed."""

from __future__ import annotations

import base64
import io
import wave
from pathlib import Path

import msgspec
import pytest

from desk.probe.test_probe_words import recognition
from helpers.uvicorn_server import Serving, Speaker, speech, text
from omniwatch.desk.chain import questions
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.slice import SliceError, answers
from omniwatch.desk.slice.answers import Answer
from omniwatch.desk.slice.heard import Servers


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 24_000, 0, "NONE", ""))
        writer.writeframes(b"\1\0" * 2400)
    return file.getvalue()


def asked(folder: Path, *names: str) -> list[Asked]:
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        (folder / f"{name}.wav").write_bytes(sound() + b"\0" * number)
    return questions.read(folder)


def answer(one: Asked, **other: object) -> Answer:
    found = Answer(
        question=one.name,
        sha256=one.described().sha256,
        config_sha256="c",
        speaker="Ethan",
        ids=[1, 2],
        text="The sky is blue",
        codes=[[1, 2], [3, 4]],
        last=7,
    )
    return msgspec.structs.replace(found, **other)


def test_what_is_added_is_read_and_half_a_line_is_not(tmp_path: Path) -> None:
    said = asked(tmp_path / "q", "one", "two")
    assert answers.read(tmp_path, "c", said) == ({}, "")
    answers.add(tmp_path, answer(said[0]))
    _, first = answers.read(tmp_path, "c", said)
    with (tmp_path / answers.NAME).open("ab") as file:
        file.write(b'{"question": "tw')
    assert answers.read(tmp_path, "c", said) == ({"one": answer(said[0])}, first)
    answers.add(tmp_path, answer(said[1]))
    found, second = answers.read(tmp_path, "c", said)
    assert found == {one.name: answer(one) for one in said}
    assert second != first


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"config_sha256": "d"}, "line 1: an answer of another model"),
        ({"sha256": "d"}, "line 1: an answer to another question: one"),
        ({"question": "three"}, "line 1: an answer to another question: three"),
        ({"ids": []}, "line 1: no tokens, or frames of several lengths"),
        ({"codes": [[1, 2], [3]]}, "line 1: no tokens, or frames of several lengths"),
    ],
)
def test_an_answer_that_does_not_belong(tmp_path: Path, other: dict[str, object], says: str) -> None:
    (one,) = asked(tmp_path / "q", "one")
    answers.add(tmp_path, answer(one, **other))
    with pytest.raises(SliceError, match=says):
        answers.read(tmp_path, "c", [one])


def test_a_line_that_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / answers.NAME).write_text('{"question": 1}\n')
    with pytest.raises(SliceError, match="line 1: no answer: Expected `str`"):
        answers.read(tmp_path, "c", [])


def kept(folder: Path, said: list[Asked]) -> dict[str, Answer]:
    (folder / answers.FOLDER).mkdir()
    for one in said:
        (folder / answers.FOLDER / f"{one.name}.wav").write_bytes(sound())
    return {one.name: answer(one) for one in said}


def test_both_models_speech_is_held_against_their_own_texts(tmp_path: Path) -> None:
    """The original said "The sky is blue", the cut model "The sky"; each time "the sky" is heard."""
    said = asked(tmp_path / "q", "one", "two")
    (tmp_path / "q/two.png").write_bytes(b"picture")
    said = questions.read(tmp_path / "q")
    found = kept(tmp_path, said)
    speaker = Speaker([text("The sky"), speech(200)])
    with Serving(speaker) as server, recognition("the sky") as (url, files):
        whole, cut = Servers.parsed(f"http://{server.authority}/v1", url, 10.0).ask(said, found, tmp_path)
    assert (whole.answers, whole.words, whole.rate.value) == (2, 8, 0.5)
    assert (cut.answers, cut.words, cut.rate.value, cut.failed) == (2, 4, 0.0, 0)
    assert files[0] == sound()
    assert len(files) == 4


def test_a_question_is_asked_with_its_picture(tmp_path: Path) -> None:
    asked(tmp_path / "q", "one")
    (tmp_path / "q/one.png").write_bytes(b"picture")
    (one,) = questions.read(tmp_path / "q")
    assert questions.sound_part(one) == {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(sound()).decode(), "format": "wav"},
    }
    (part,) = questions.picture_part(one)
    assert part["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(b'picture').decode()}"


def test_a_recognition_that_fails_and_a_server_that_is_not_there(tmp_path: Path) -> None:
    said = asked(tmp_path / "q", "one")
    found = kept(tmp_path, said)
    dead = "http://127.0.0.1:9"
    with (
        recognition("", 500) as (url, _),
        pytest.raises(SliceError, match=r"--asr .*: no answer could be .* 500"),
    ):
        Servers.parsed(dead, url, 10.0).ask(said, found, tmp_path)
    with (
        recognition("the sky") as (url, _),
        pytest.raises(SliceError, match=f"--native {dead}: cannot reach it"),
    ):
        Servers.parsed(dead, url, 10.0).ask(said, found, tmp_path)
