"""The tap on `WS /v1/video/chat/stream`."""

from __future__ import annotations

import pytest

from helpers.scripted_tap import (
    Step,
    answers,
    disconnect,
    opening,
    pcm16,
    recorded_steps,
    said,
    says,
    turn_numbers,
    wav,
)
from helpers.wire import EXPECTED, assert_as_expected


def test_a_conversation(tapped):
    tapped.connect(
        [
            *opening(10.0),
            says(10.1, type="session.config"),
            says(10.2, type="video.frame", data="/9j/", frame_id="f0", pts_ms=12.5),
            answers(10.2, type="video.frame.ack", frame_id="f0", pts_ms=12.5),
            says(10.3, type="video.query", text="what is this?"),
            answers(10.4, type="response.start"),
            answers(10.5, type="response.text.delta", delta="A "),
            answers(10.6, type="response.output_audio.delta", data=wav(240), format="wav"),
            answers(10.7, type="response.output_audio.delta", data=wav(2000), format="wav"),
            answers(10.8, type="response.output_audio.done"),
            says(11.0, type="video.done"),
            answers(11.1, type="session.done"),
        ]
    )
    events = tapped.events()
    assert said(events) == [
        (10.0, "stream_start"),
        (10.2, "video", 12.5),
        (10.3, "turn", 1),
        (10.6, "audio", 1, 240),
        (10.7, "audio", 1, 2000),
        (10.8, "turn_end", 1, "completed"),
        (11.1, "stream_end", "closed"),
    ]
    start, frame, turn = events[:3]
    assert (start.peer, start.kind) == ("192.0.2.7:40000", "video")
    assert frame.frame_id == "f0"
    assert turn.chars == len("what is this?")
    assert [event.n for event in events] == list(range(len(events)))
    assert len({event.w for event in events}) == len({event.stream for event in events}) == 1


@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_of_the_real_server_give_their_numbers(tapped, name):
    tapped.connect(recorded_steps(name))
    for got, expected in zip(turn_numbers(tapped.events()), EXPECTED[name], strict=True):
        assert_as_expected(got, expected)


def test_servers_before_0_30_name_the_audio_otherwise(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="response.start"),
            answers(3, type="response.audio.delta", data=wav(80), format="wav"),
            answers(4, type="response.audio.done"),
            disconnect(5),
        ]
    )
    assert said(tapped.events())[1:-1] == [
        (1, "turn", 1),
        (3, "audio", 1, 80),
        (4, "turn_end", 1, "completed"),
    ]


def test_a_server_that_never_says_response_start(tapped):
    turns: list[Step] = []
    for t in (10, 20):
        turns += [
            says(t, type="video.query", text="x"),
            answers(t + 1, type="response.audio.delta", data=wav(80)),
            answers(t + 2, type="response.audio.done"),
        ]
    tapped.connect([*opening(), *turns, disconnect(30)])
    assert [event for event in said(tapped.events()) if event[1] in ("turn", "audio")] == [
        (10, "turn", 1),
        (11, "audio", 1, 80),
        (20, "turn", 2),
        (21, "audio", 2, 80),
    ]


def test_errors_about_one_frame_leave_the_turn_alone(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="error", message="Invalid image data"),
            answers(3, type="response.start"),
            answers(4, type="response.output_audio.delta", data=wav(80), format="wav"),
            answers(5, type="response.output_audio.done"),
            disconnect(6),
        ]
    )
    assert said(tapped.events())[1:-1] == [
        (1, "turn", 1),
        (4, "audio", 1, 80),
        (5, "turn_end", 1, "completed"),
    ]


def test_a_query_that_cannot_be_answered_fails(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="error", message="No frames buffered"),
            disconnect(3),
        ]
    )
    assert said(tapped.events())[1:-1] == [(1, "turn", 1), (2, "turn_end", 1, "failed")]


def test_a_new_query_gives_up_the_answer_before_and_its_tail_stays_with_it(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="response.start"),
            answers(3, type="response.output_audio.delta", data=wav(2000), format="wav"),
            says(4, type="video.query", text="no, y"),
            answers(4.1, type="response.output_audio.delta", data=wav(80), format="wav"),
            answers(5, type="response.start"),
            answers(6, type="response.output_audio.delta", data=wav(240), format="wav"),
            answers(7, type="response.output_audio.done"),
            disconnect(8),
        ]
    )
    events = said(tapped.events())
    assert events[1:6] == [
        (1, "turn", 1),
        (3, "audio", 1, 2000),
        (4, "turn_end", 1, "interrupted"),
        (4, "turn", 2),
        (4.1, "audio", 1, 80),
    ]
    assert (6, "audio", 2, 240) in events
    assert (7, "turn_end", 2, "completed") in events


def test_two_queries_at_once_are_answered_by_the_last(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            says(1.1, type="video.query", text="y"),
            answers(2, type="response.start"),
            answers(2.1, type="response.start"),
            answers(3, type="response.output_audio.delta", data=wav(240), format="wav"),
            answers(4, type="response.output_audio.done"),
            disconnect(5),
        ]
    )
    assert said(tapped.events())[1:-1] == [
        (1, "turn", 1),
        (1.1, "turn_end", 1, "interrupted"),
        (1.1, "turn", 2),
        (3, "audio", 2, 240),
        (4, "turn_end", 2, "completed"),
    ]


def test_a_model_that_speaks_unasked_makes_a_turn_without_a_question(tapped):
    tapped.connect(
        [
            *opening(),
            answers(1, type="response.start"),
            answers(2, type="response.output_audio.delta", data=wav(80), format="wav"),
            answers(3, type="response.output_audio.done"),
            answers(4, type="response.start"),
            answers(5, type="response.output_audio.delta", data=wav(80), format="wav"),
            disconnect(6),
        ]
    )
    assert said(tapped.events())[1:] == [
        (2, "audio", 1, 80),
        (3, "turn_end", 1, "completed"),
        (5, "audio", 2, 80),
        (6, "turn_end", 2, "aborted"),
        (6, "stream_end", "disconnect"),
    ]


def test_a_session_that_wants_text_only_makes_no_turn(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="session.config", modalities=["text"]),
            says(2, type="video.query", text="x"),
            answers(3, type="response.start"),
            answers(4, type="response.text.done", text="an answer"),
            disconnect(5),
        ]
    )
    assert said(tapped.events()) == [(0, "stream_start"), (5, "stream_end", "disconnect")]


def test_an_answer_that_stayed_without_speech_is_completed_with_the_session(tapped):
    tapped.connect(
        [
            *opening(),
            says(2, type="video.query", text="x"),
            answers(3, type="response.start"),
            answers(4, type="response.text.done", text="an answer"),
            answers(5, type="session.done"),
        ]
    )
    assert (5, "turn_end", 1, "completed") in said(tapped.events())


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"pts_ms": None},
        {"pts_ms": "12"},
        {"pts_ms": 1e300},
        {"pts_ms": 5, "frame_id": [1]},
        {"capture_ts_ms": 5},
    ],
)
def test_frames_without_a_sound_pts_are_left(tapped, frame):
    tapped.connect([*opening(), says(1, type="video.frame", data="x", **frame), disconnect(2)])
    assert said(tapped.events())[1:] == [(2, "stream_end", "disconnect")]


def test_speech_whose_length_cannot_be_told_is_left(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="response.output_audio.delta", data=pcm16(80), format="opus"),
            answers(2, type="response.output_audio.delta", data="", format="wav"),
            answers(2, type="response.output_audio.delta", format="wav"),
            answers(3, type="response.output_audio.done"),
            disconnect(4),
        ]
    )
    assert said(tapped.events())[1:-1] == [(1, "turn", 1), (3, "turn_end", 1, "completed")]
