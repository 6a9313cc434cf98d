"""The tap on `WS /v1/realtime`, by turns and duplex."""

from __future__ import annotations

import pytest

from helpers.realtime_session import commit, greeted, recorded, spoken
from helpers.scripted_tap import (
    REALTIME,
    answers,
    disconnect,
    pcm16,
    said,
    says,
    turn_numbers,
)


def test_the_recorded_session_of_the_real_server(tapped):
    tapped.connect(recorded(), REALTIME)
    events = tapped.events()
    assert [event[1:] for event in said(events)[1:]] == [
        ("turn", 1),
        ("audio", 1, 296.875),
        ("audio", 1, 1703.125),
        ("audio", 1, 1600.0),
        ("turn_end", 1, "completed"),
        ("stream_end", "disconnect"),
    ]
    (numbers,) = turn_numbers(events)
    assert numbers.first_audio == pytest.approx((5656.476546 - 5655.659697) * 1000, abs=0.1), (
        "from the final commit on"
    )
    assert numbers.audio == pytest.approx(3600.0)


def test_a_turn_starts_when_the_input_is_complete(tapped):
    tapped.connect(
        [
            *greeted(),
            says(1, type="session.update", model="m"),
            commit(2),
            says(3, type="input_audio_buffer.append", audio=pcm16(200)),
            commit(4, final=True),
            answers(5, type="transcription.delta", delta="yes"),
            spoken(6, 80),
            answers(7, type="response.output_audio.done", has_audio=True),
            commit(10),
            commit(11, final=True),
            spoken(12, 80),
            disconnect(13),
        ],
        REALTIME,
    )
    assert said(tapped.events()) == [
        (0, "stream_start"),
        (4, "turn", 1),
        (6, "audio", 1, 80),
        (7, "turn_end", 1, "completed"),
        (11, "turn", 2),
        (12, "audio", 2, 80),
        (13, "turn_end", 2, "aborted"),
        (13, "stream_end", "disconnect"),
    ]


def test_speech_before_the_final_commit_answers_the_first(tapped):
    tapped.connect(
        [*greeted(), commit(2), spoken(3, 80), commit(4, final=True), spoken(5, 80), disconnect(6)], REALTIME
    )
    assert said(tapped.events())[1:4] == [(2, "turn", 1), (3, "audio", 1, 80), (5, "audio", 1, 80)]


def test_an_answer_without_speech(tapped):
    tapped.connect(
        [
            *greeted(),
            commit(1),
            commit(2, final=True),
            answers(3, type="response.output_audio.done", has_audio=False),
            commit(4),
            answers(5, type="response.output_audio.done", has_audio=False),
            disconnect(6),
        ],
        REALTIME,
    )
    assert said(tapped.events())[1:] == [
        (2, "turn", 1),
        (3, "turn_end", 1, "completed"),
        (6, "stream_end", "disconnect"),
    ]


def test_a_generation_that_fails(tapped):
    tapped.connect(
        [
            *greeted(),
            commit(1),
            commit(2, final=True),
            spoken(3, 80),
            answers(4, type="error", error="engine", code="processing_error"),
            answers(5, type="response.output_audio.done", has_audio=True),
            disconnect(6),
        ],
        REALTIME,
    )
    assert said(tapped.events())[1:-1] == [
        (2, "turn", 1),
        (3, "audio", 1, 80),
        (4, "fault"),
        (4, "turn_end", 1, "failed"),
    ]


def test_servers_before_0_30_name_the_audio_otherwise(tapped):
    old = answers(3, type="response.audio.delta", audio=pcm16(80), format="pcm16", sample_rate_hz=24_000)
    tapped.connect(
        [
            *greeted(),
            commit(1),
            commit(2, final=True),
            old,
            answers(4, type="response.audio.done"),
            disconnect(5),
        ],
        REALTIME,
    )
    assert said(tapped.events())[2:4] == [(3, "audio", 1, 80), (4, "turn_end", 1, "completed")]


def test_a_warm_up_connection_is_none_of_its_business(tapped):
    sent = tapped.connect(
        [*greeted(), commit(1), commit(2, final=True), spoken(3, 80)],
        REALTIME,
        query_string=b"model=m&vllm_omni_warmup=1",
    )
    assert sent[0]["headers"] == [(b"x-own", b"1")]
    assert tapped.events() == []
