"""When an answer's text begins, how long it is, and whether its speech is digital silence."""

from __future__ import annotations

import base64
import json

import pytest

from helpers.realtime_session import commit, greeted
from helpers.scripted_tap import (
    CHAT,
    REALTIME,
    Step,
    answers,
    body,
    disconnect,
    opening,
    request,
    response,
    says,
)
from omniwatch import events as ev

NOISE = bytes(range(1, 251)) * 400


def texts(events):
    return [(round(event.t, 3), event.turn) for event in events if isinstance(event, ev.Text)]


def lengths(events):
    return [event.chars for event in events if isinstance(event, ev.TurnEnd)]


def silences(events):
    return [event.silent for event in events if isinstance(event, ev.Audio)]


def speech(size: int, content: bytes = b"\0") -> str:
    return base64.b64encode((content * (size // len(content) + 1))[:size]).decode()


def spoken(t: float, data: str) -> Step:
    return answers(t, type="response.output_audio.delta", data=data, format="pcm16")


def video(*steps: Step) -> list[Step]:
    return [
        *opening(10),
        says(11, type="video.query", text="what?"),
        answers(11.1, type="response.start"),
        *steps,
        disconnect(20),
    ]


def test_of_a_video_answer_the_first_text_and_all_of_its_length(tapped):
    words = [
        answers(12 + n, type="response.text.delta", delta=word) for n, word in enumerate(("", "A ", "cät"))
    ]
    tapped.connect(
        video(*words, spoken(15, speech(4000, NOISE)), answers(16, type="response.output_audio.done"))
    )
    events = tapped.events()
    assert texts(events) == [(13, 1)]
    assert lengths(events) == [5]


def test_an_answer_without_text_has_no_length(tapped):
    tapped.connect(video(spoken(15, speech(4000, NOISE)), answers(16, type="response.output_audio.done")))
    events = tapped.events()
    assert (texts(events), lengths(events)) == ([], [None])


def chat(modalities: list[str] | None, *contents: tuple[float, str, str]) -> list[Step]:
    asked = {"stream": True, "messages": []} | ({"modalities": modalities} if modalities else {})

    def chunk(content: str, modality: str) -> bytes:
        whole = {"choices": [{"index": 0, "delta": {"content": content}}], "modality": modality}
        return b"data: " + json.dumps(whole).encode() + b"\n\n"

    steps = [body(t, chunk(content, modality)) for t, content, modality in contents]
    return [
        *request(10, asked),
        response(10.1),
        *steps,
        body(20, b"data: [DONE]\n\n"),
        body(20, b"", more=False),
    ]


@pytest.mark.parametrize("modalities", [None, ["text", "audio"]])
def test_of_a_chat_it_is_told_when_it_was_whether_speech_was_asked_for_or_came_unasked(tapped, modalities):
    speaks = (13, speech(4000, NOISE), "audio")
    tapped.connect(chat(modalities, (11, "A ", "text"), (12, "cat", "text"), speaks, (14, ".", "text")), CHAT)
    events = tapped.events()
    assert [t for t, _ in texts(events)] == [11]
    assert lengths(events) == [6]


def test_a_chat_of_text_alone_is_no_turn(tapped):
    tapped.connect(chat(None, (11, "A cat", "text")), CHAT)
    assert not {type(event) for event in tapped.events()} & {ev.TurnStart, ev.Text, ev.TurnEnd}


@pytest.mark.parametrize(
    "kind", ["transcription.delta", "response.output_audio_transcript.delta", "response.text.delta"]
)
def test_of_a_realtime_answer_also_what_comes_before_the_input_is_complete(tapped, kind):
    def said(t: float, delta: str) -> Step:
        return answers(t, type=kind, delta=delta)

    voice = answers(5, type="response.output_audio.delta", audio=speech(4000, NOISE), format="pcm16")
    done = answers(6, type="response.output_audio.done")
    tapped.connect(
        [
            *greeted(),
            commit(1),
            said(2, "ab"),
            commit(3, final=True),
            said(4, "cde"),
            voice,
            done,
            disconnect(7),
        ],
        REALTIME,
    )
    events = tapped.events()
    assert texts(events) == [(2, 1)]
    assert lengths(events) == [5]


def test_text_that_answers_nothing_is_no_later_answers(tapped):
    unasked = answers(1, type="transcription.delta", delta="unasked")
    voice = answers(5, type="response.output_audio.delta", audio=speech(4000, NOISE), format="pcm16")
    done = answers(6, type="response.output_audio.done")
    tapped.connect(
        [*greeted(), unasked, commit(2), commit(3, final=True), voice, done, disconnect(7)], REALTIME
    )
    events = tapped.events()
    assert (texts(events), lengths(events)) == ([], [None])


@pytest.mark.parametrize("size", [3840, 96_000, 300_000])
@pytest.mark.parametrize("header", [0, 44])
def test_zeros_are_silence_at_every_size(tapped, size, header):
    head = NOISE[:header]
    zeros = base64.b64encode(head + bytes(size)).decode()
    noisy = base64.b64encode(head + bytes(size - 2) + b"\1\0").decode()
    fading = base64.b64encode(head + bytes(200) + b"\1" + bytes(size - 201)).decode()
    tapped.connect(
        video(*(spoken(12 + n, data) for n, data in enumerate((zeros, noisy, fading, speech(size, NOISE)))))
    )
    assert silences(tapped.events()) == [True, None, None, None]


def test_what_is_too_short_to_tell_is_not_told(tapped):
    tapped.connect(video(spoken(12, speech(80))))
    assert silences(tapped.events()) == [None]
