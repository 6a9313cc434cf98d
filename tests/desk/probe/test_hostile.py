"""A probed server that means harm: each turn is over in time, and what is shown of its words is one plain line."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
import time

import pytest
from prometheus_client import CollectorRegistry

from helpers import hostile_websocket
from helpers.hostile_http import ENDLESS, HEADS, OK, hostile, unresolvable
from helpers.hostile_websocket import frame, message, talking
from omniwatch.desk.probe import OUTCOMES, Client, Limits
from omniwatch.desk.probe.blackbox import Blackbox
from omniwatch.desk.probe.chat import ChatClient
from omniwatch.desk.probe.rounds import open_client
from omniwatch.desk.probe.target import parse
from omniwatch.desk.probe.turn import Asking
from omniwatch.desk.probe.video import VideoClient

EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"


@pytest.mark.slow
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
    monkeypatch.setattr("omniwatch.desk.probe.chat.MAX_MESSAGE_BYTES", 1 << 20)
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


@pytest.mark.parametrize(
    ("client", "scheme"), [(ChatClient, "http"), (VideoClient, "ws")], ids=["chat", "video"]
)
def test_a_name_that_hangs_ends_the_turn_within_its_time(monkeypatch, client, scheme):
    turns = []

    def ask() -> None:
        asking = Asking("hello", timeout_s=0.3, model="m")
        turns.append(client(parse(f"{scheme}://slow-{scheme}.example:8000"), asking).turn(1))

    with unresolvable(monkeypatch):
        asks = threading.Thread(target=ask, daemon=True)
        asks.start()
        asks.join(10)
        over_in_time = bool(turns)
    assert over_in_time
    host = f"slow-{scheme}.example"
    expected = f"{host}:8000: the name {host} was not resolved in time"
    assert (turns[0].outcome, turns[0].detail) == ("unreachable", expected)


def test_opening_a_video_session_has_one_deadline_for_all_its_steps(monkeypatch):
    """The name takes most of the time; the server that never answers has only what is left."""
    look_up = socket.getaddrinfo

    def slowly(*args, flags=0, **more):
        if not flags & socket.AI_NUMERICHOST:
            now.append(now[-1] + 29)
            args = ("127.0.0.1", *args[1:])
        return look_up(*args, flags=flags, **more)

    now = [0.0]
    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with hostile(lambda: []) as url:
        target = parse(url.replace("http://127.0.0.1", "ws://late.example"))
        began = time.monotonic()
        turn = VideoClient(target, Asking("hello", timeout_s=30.0, clock=lambda: now[-1])).turn(1)
    assert turn.outcome == "unreachable"
    assert time.monotonic() - began < 20


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def spoken(content: str, rate_hz: float) -> bytes:
    stated = {"format": "pcm16", "sample_rate_hz": rate_hz}
    choice = {"index": 0, "delta": {"content": content}, "audio_metadata": stated}
    return event({"choices": [choice], "modality": "audio"})


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


DONE = b"data: [DONE]\n\n"
LIES = {
    "a rate of 1e-308": (spoken("AAAA", 1e-308) + DONE, "ok"),
    "a rate of 1e308": (spoken("AAAA", 1e308) + DONE, "ok"),
    "speech of a length that it states itself": (spoken("AAAA\x7f" + "9" * 300, 24_000) + DONE, "malformed"),
    "speech of a length without end": (spoken("AAAA\x7f" + "9" * 5000, 24_000) + DONE, "malformed"),
    "no text": (b"data: \xff\xfe\n\n", "malformed"),
    **{
        f"an error of {depth} levels": (b'data: {"error": ' + nested(depth) + b"}\n\n", None)
        for depth in (100, 300, 500, 900, 990, 10_000)
    },
}


@pytest.mark.parametrize("name", LIES)
def test_an_answer_that_lies_is_a_turn_of_an_outcome(name):
    said, outcome = LIES[name]
    with hostile(lambda: [EVENTS, said]) as url:
        turn = ChatClient(parse(url), Asking("hello", timeout_s=5.0, model="m")).turn(1)
    assert turn.outcome == outcome or (outcome is None and turn.outcome in ("error", "malformed"))
    assert turn.heard.audio_ms < 1
    assert len(turn.detail or "") < 1000


@pytest.mark.parametrize(
    "models",
    [b'{"data": [{"id": ' + nested(depth) + b"}]}" for depth in (100, 300, 500, 900, 990)]
    + [
        b'{"data": [{"id": ' + b"9" * 500_000 + b"}]}",
        b'{"data": [{"id": "\\ud800"}]}',
        b"{}",
        b"[1]",
        b"\xff",
    ],
)
def test_what_names_no_model_asks_for_any(models):
    asked: list[bytes] = []

    def head(request: bytes) -> bytes:
        asked.append(request)
        size = str(len(models)).encode()
        return OK + b"Connection: close\r\nContent-Length: " + size + b"\r\n\r\n" + models

    with hostile(lambda: [], 0.0, head) as url:
        began = time.monotonic()
        turn = ChatClient(parse(url), Asking("hello", timeout_s=5.0)).turn(1)
        assert time.monotonic() - began < 5
    assert turn.outcome == "malformed"
    assert b'"model"' not in asked[1]


def test_an_answer_that_drips_for_ever_is_bounded_in_time(monkeypatch):
    monkeypatch.setattr("omniwatch.desk.probe.chat.MAX_ANSWER_S", 1.0)
    with hostile(lambda: itertools.chain([EVENTS], itertools.repeat(event({"choices": []}))), 0.1) as url:
        turn = ChatClient(parse(url), Asking("hello", timeout_s=20.0, model="m")).turn(1)
    assert (turn.outcome, turn.detail) == ("timeout", "the answer went on for more than 1 s")


@pytest.mark.slow
@pytest.mark.parametrize("name", hostile_websocket.ENDLESS)
def test_a_session_without_end_ends_the_turn(name, monkeypatch):
    monkeypatch.setattr("omniwatch.desk.probe.video.MAX_ANSWER_S", 1.5)
    monkeypatch.setattr("omniwatch.desk.probe.video.MAX_MESSAGE_BYTES", 1 << 20)
    with talking(*hostile_websocket.ENDLESS[name]) as url:
        client = VideoClient(parse(url), Asking("hello", timeout_s=1.0, fps=50.0))
        began = time.monotonic()
        turn = client.turn(1)
        assert time.monotonic() - began < 10
        client.close()
    assert turn.outcome in ("timeout", "malformed", "cut")


def test_a_server_that_reads_no_more_holds_no_turn(monkeypatch):
    monkeypatch.setattr("omniwatch.desk.probe.video._image", "A" * (8 << 20))
    with talking(list) as url:
        client = VideoClient(parse(url), Asking("hello", timeout_s=1.0))
        began = time.monotonic()
        turn = client.turn(1)
        assert time.monotonic() - began < 10
    assert turn.outcome == "timeout"


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        frame(struct.pack(">H", 1001) + b"\x1b[2Jgone", 8),
        frame(b"\xff\xff", 1),
        b"\xff\xff\xff\xff",
        message(type="error", message="Unknown message type\x1b]0;own\x07"),
        message(type="response.audio.delta", data="AAAA\x7f" + "9" * 5000),
        frame(b'{"type": "response.text.delta", "delta": ' + nested(9_000) + b"}"),
        frame(b'{"type": "response.text.delta", "delta": ' + nested(500) + b"}") + frame(b"", 8),
    ],
)
def test_what_a_session_is_ended_by_is_one_plain_line(said):
    with talking(lambda: [said]) as url:
        turn = VideoClient(parse(url), Asking("hello", timeout_s=1.0)).turn(1)
    assert turn.outcome in ("cut", "malformed", "error", "timeout")
    assert (turn.detail or "").isprintable()


class Changing:
    """A client of one server after the other, each for a round."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = iter(urls)

    def __call__(self) -> Client:
        return open_client(parse(next(self.urls)), Asking("hello", timeout_s=0.3, model=None))


@pytest.mark.slow
def test_a_standing_probe_outlives_them_all_and_tells_when_its_last_round_ended(monkeypatch):
    monkeypatch.setattr("omniwatch.desk.probe.video.MAX_ANSWER_S", 0.5)
    registry, stop, ended = CollectorRegistry(), threading.Event(), [100.0]
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(hostile(speech, pause_s, HEADS.get(name, b"")))
            for name, (speech, pause_s) in ENDLESS.items()
        ]
        urls += [
            servers.enter_context(hostile(lambda said=said: [EVENTS, said])) for said, _ in LIES.values()
        ]
        urls += [servers.enter_context(talking(*one)) for one in hostile_websocket.ENDLESS.values()]

        def clock() -> float:
            ended[0] += 1.0
            if ended[0] == 100.0 + len(urls):
                stop.set()
            return ended[0]

        probe = Blackbox(Changing(urls), 1, Limits(), registry, clock=clock)
        assert registry.get_sample_value("omni_probe_last_round_timestamp_seconds") is None
        probe.run(0.0, stop)
    assert registry.get_sample_value("omni_probe_last_round_timestamp_seconds") == 100.0 + len(urls)
    assert registry.get_sample_value("omni_probe_success") == 0
    counted = sum(
        registry.get_sample_value("omni_probe_turns_total", {"outcome": outcome}) or 0 for outcome in OUTCOMES
    )
    assert counted == len(urls), "each turn counts as something"


def test_a_fault_of_its_own_ends_no_standing_probe(caplog):
    registry, stop, rounds = CollectorRegistry(), threading.Event(), []

    def open_one() -> Client:
        rounds.append(1)
        if len(rounds) == 3:
            stop.set()
        raise RuntimeError("a fault that nobody foresaw")

    Blackbox(open_one, 1, Limits(), registry, clock=lambda: 5.0).run(0.0, stop)
    assert len(rounds) == 3
    assert registry.get_sample_value("omni_probe_success") == 0
    assert registry.get_sample_value("omni_probe_last_round_timestamp_seconds") == 5.0
    assert "a round failed" in caplog.text
