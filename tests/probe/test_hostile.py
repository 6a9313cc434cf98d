"""A probed server that means harm: each turn is over in time, and what is shown of its words is one plain line."""

from __future__ import annotations

import time

import pytest

from helpers.hostile_http import ENDLESS, HEADS, OK, hostile
from omniwatch.probe.chat import ChatClient
from omniwatch.probe.target import parse
from omniwatch.probe.turn import Asking

EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize("model", [None, "named"])
@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end_ends_the_turn(name, model):
    speech, pause_s = ENDLESS[name]
    with hostile(speech, pause_s, HEADS.get(name, b"")) as url:
        began = time.monotonic()
        turn = ChatClient(parse(url), Asking("hello", timeout_s=1.0, model=model)).turn(1)
        assert time.monotonic() - began < 8
    assert turn.outcome in ("timeout", "malformed", "error")


def test_events_that_say_nothing_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("omniwatch.probe.chat.MAX_MESSAGE_BYTES", 1 << 20)
    event = b'data: {"choices": []}\n\n' * 1000
    with hostile(lambda: [EVENTS, *([event] * 100)]) as url:
        turn = ChatClient(parse(url), Asking("hello", timeout_s=10.0, model="m")).turn(1)
    assert (turn.outcome, turn.detail) == ("malformed", "an answer of more than 1048576 bytes")


def test_models_of_any_depth_are_read():
    body = b"[" * 100_000
    head = OK + b"Connection: close\r\nContent-Length: 100000\r\n\r\n"
    with hostile(lambda: [head + body]) as url:
        turn = ChatClient(parse(url), Asking("hello", timeout_s=10.0)).turn(1)
    assert (turn.outcome, turn.detail) == ("malformed", "expected text/event-stream, got text/plain")


def test_the_words_of_an_error_reach_no_terminal_as_commands():
    refusal = b"HTTP/1.1 500 \x1b[2JNo\r\nContent-Length: 9\r\n\r\n\x1b]0;own\x07\n"
    with hostile(lambda: [refusal]) as url:
        turn = ChatClient(parse(url), Asking("hello", timeout_s=10.0, model="m")).turn(1)
    assert (turn.outcome, turn.detail) == ("error", "500 \\x1b[2JNo \\x1b]0;own\\x07")
