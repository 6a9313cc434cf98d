"""What holds for every websocket behind the tap: its beginning, its end, and what is no message."""

from __future__ import annotations

import pytest

from helpers.scripted_tap import VIDEO, Step, answers, disconnect, opening, said, says, wav
from omniwatch import events as ev


@pytest.mark.parametrize(
    ("end", "events"),
    [
        (disconnect(5), [(5, "turn_end", 1, "aborted"), (5, "stream_end", "disconnect")]),
        (
            Step(5, "out", {"type": "websocket.close", "code": 1011}),
            [(5, "turn_end", 1, "failed"), (5, "stream_end", "closed")],
        ),
        (
            answers(5, type="error", message="Query processing failed"),
            [(5, "turn_end", 1, "failed"), (5, "stream_end", "closed")],
        ),
        (
            answers(5, type="error", message="Frame too large"),
            [(5, "turn_end", 1, "failed"), (5, "stream_end", "closed")],
        ),
    ],
)
def test_whatever_ends_the_speech_ends_the_turn_and_the_stream(tapped, end, events):
    tapped.connect(
        [
            *opening(),
            says(1, type="video.query", text="x"),
            answers(2, type="response.start"),
            answers(3, type="response.output_audio.delta", data=wav(2000), format="wav"),
            end,
        ]
    )
    assert said(tapped.events())[-2:] == events


def test_messages_after_the_end_are_no_events(tapped):
    late = answers(6, type="response.output_audio.delta", data=wav(80), format="wav")
    tapped.connect([*opening(), says(1, type="video.query", text="x"), disconnect(5), late])
    assert said(tapped.events())[-1] == (5, "stream_end", "disconnect")


def test_binary_frames_and_nonsense_pass(tapped):
    nonsense = [
        Step(1, "in", {"type": "websocket.receive", "bytes": b"\x00\xff"}),
        Step(1, "in", {"type": "websocket.receive", "text": None, "bytes": b"{}"}),
        Step(1, "in", {"type": "websocket.receive", "text": "{"}),
        Step(1, "in", {"type": "websocket.receive", "text": "[]"}),
        Step(1, "in", {"type": "websocket.receive", "text": '{"type": 5}'}),
        Step(1, "out", {"type": "websocket.send", "bytes": b"\x00"}),
        Step(1, "out", {"type": "websocket.send", "text": "\ud800"}),
    ]
    tapped.connect([*opening(), *nonsense, disconnect(5)])
    assert said(tapped.events()) == [(0, "stream_start"), (5, "stream_end", "disconnect")]


def test_a_connection_that_was_refused_is_no_stream(tapped):
    tapped.connect([opening()[0], Step(1, "out", {"type": "websocket.close", "code": 1008})])
    assert tapped.events() == []


@pytest.mark.parametrize(
    ("client", "peer"),
    [
        (("192.0.2.7", 40000), "192.0.2.7:40000"),
        (("2001:db8::7", 40000), "[2001:db8::7]:40000"),
        (("192.0.2.7", 0), None),
        (("x" * 64, 40000), None),
        (None, None),
    ],
)
def test_the_peer_is_named_where_it_is_a_connection(tapped, client, peer):
    tapped.connect([*opening(), disconnect(1)], VIDEO, client=client)
    start = tapped.events()[0]
    assert isinstance(start, ev.StreamStart)
    assert start.peer == peer
