"""The ear against real connections of this kernel: what has arrived, when it gives up, and whom it does not believe."""

from __future__ import annotations

import os
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.listening import BROKEN, CHUNK, CHUNK_MS, Call, Netlink
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.tap.ear import Ear, mode_of

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def turn_of(call: Call) -> ev.TurnStart:
    return next(event for event in call.told if isinstance(event, ev.TurnStart))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_speech_has_arrived_once_the_client_acknowledged_it(host):
    with Call(host=host) as call:
        call.stream_events.ask(1)
        assert turn_of(call).ear == "kernel"
        for chunk in range(1, 4):
            call.say()
            arrived = call.until_arrived(chunk * CHUNK_MS)
            assert (arrived.stream, arrived.turn, arrived.ear) == ("a", 1, None)
            assert arrived.rtt_ms is not None
            assert arrived.least_rtt_ms is not None
            assert 0 < arrived.least_rtt_ms <= arrived.rtt_ms
            assert arrived.ago_ms < 5000
        assert [event.ms for event in call.arrived if event.ms] == [80.0, 160.0, 240.0]


def test_the_congestion_control_is_told_once_a_turn_and_when_it_is_another():
    first, second, *_ = sorted(AVAILABLE.read_text().split(), key="reno".__ne__)
    with Call() as call:

        def heard(turn: int, ms: float) -> list[str | None]:
            wait_until(lambda: any(event.turn == turn and event.ms >= ms for event in call.arrived))
            return [event.congestion for event in call.arrived if event.turn == turn and event.ms]

        call.served.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, first.encode())
        call.stream_events.ask(1)
        call.say()
        assert heard(1, CHUNK_MS) == [first]
        call.say()
        assert heard(1, 2 * CHUNK_MS) == [first, None]
        call.served.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, second.encode())
        call.say()
        assert heard(1, 3 * CHUNK_MS) == [first, None, second]
        call.stream_events.ask(2)
        call.say(turn=2)
        assert heard(2, CHUNK_MS) == [second]


def test_the_first_message_of_a_turn_is_told_alone():
    may_ask = threading.Event()

    class Late(Netlink):
        def send(self, question: bytes) -> int:
            may_ask.wait(20)
            return super().send(question)

    with Call(open_socket=lambda: Late(bytes)) as call:
        call.stream_events.ask(1)
        for _ in range(3):
            call.say()
        may_ask.set()
        last = call.until_arrived(3 * CHUNK_MS)
        first = next(event for event in call.arrived if event.ms)
        assert (first.ms, last.ms) == (CHUNK_MS, 3 * CHUNK_MS)
        assert first.t - first.ago_ms / 1000 <= last.t - last.ago_ms / 1000 + 0.001


def test_what_waits_in_the_kernel_has_not_arrived():
    with Call(buffer_bytes=4096) as call:
        call.stream_events.ask(1)
        for _ in range(20):
            call.say()
        waiting = wait_until(lambda: [event for event in call.arrived if event.waiting])[0]
        assert waiting.ms < 10 * CHUNK_MS
        wait_until(lambda: any(event.window_ms > 500 for event in call.arrived), what="a closed window")
        assert call.arrived[-1].ms < 20 * CHUNK_MS
        call.read()
        call.until_arrived(20 * CHUNK_MS)


@pytest.mark.slow
def test_while_nothing_arrives_it_says_so_each_second():
    with Call(buffer_bytes=4096) as call:
        call.stream_events.ask(1)
        for _ in range(40):
            call.say()
        last = wait_until(lambda: call.arrived and call.arrived[-1])
        later = wait_until(lambda: [event for event in call.arrived if event.t >= last.t + 2])
        standing = [event for event in call.arrived if event.ms == later[-1].ms]
        assert all(b.t - a.t >= 1.0 for a, b in pairwise(standing))


def test_nothing_wakes_it_while_nothing_is_under_way():
    asked = []

    def counted(answer: bytes) -> bytes:
        asked.append(time.monotonic())
        return answer

    with Call(open_socket=lambda: Netlink(counted)) as call:
        call.stream_events.ask(1)
        call.say()
        call.until_arrived(CHUNK_MS)
        wait_until(lambda: not call.line.is_attended)
        before = len(asked)
        assert not threading.Event().wait(0.5)
        assert len(asked) == before
        call.say()
        call.until_arrived(2 * CHUNK_MS)


def test_several_turns_of_one_connection_are_told_apart():
    with Call() as call:
        for turn in (1, 2):
            call.stream_events.ask(turn)
            call.say(b"text and no speech", 0)
            call.say(turn=turn)
            wait_until(lambda turn=turn: any(event.turn == turn and event.ms for event in call.arrived))
        assert [(event.turn, event.ms) for event in call.arrived if event.ms] == [(1, 80.0), (2, 80.0)]


def test_a_client_that_read_a_whole_answer_and_left_has_it():
    with Call() as call:
        call.stream_events.ask(1)
        wait_until(lambda: not call.line.is_attended)
        call.line.is_attended = True
        call.say()
        call.line.is_attended = False
        call.line.is_whole = True
        call.line.asked_m = time.monotonic()
        call.read()
        call.client.close()
        call.served.close()
        call.line.attend()
        call.until_arrived(CHUNK_MS)


def test_what_a_lost_connection_still_held_has_not_arrived():
    with Call(buffer_bytes=4096) as call:
        call.stream_events.ask(1)
        for _ in range(40):
            call.say()
        wait_until(lambda: call.arrived)
        call.served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        call.served.close()
        wait_until(lambda: call.line.is_gone)
        call.line.is_left = True
        wait_until(lambda: not call.line.is_attended)
        assert call.arrived[-1].ms < 40 * CHUNK_MS
        assert call.arrived[-1].ear is None


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_an_ear_that_fails_says_so_within_three_seconds(fault):
    with Call(open_socket=BROKEN[fault]) as call:
        begun = time.monotonic()
        call.stream_events.ask(1)
        call.say()
        given_up = wait_until(lambda: [event for event in call.arrived if event.ear == "sent"], timeout=10)
        assert time.monotonic() - begun < 3.0 + 1.0 * (os.getloadavg()[0] > 2)
        assert given_up[0].ms == 0
        for _ in range(5):
            call.say()
        call.read()
        call.stream_events.ask(2)
        assert [event.ear for event in call.told if isinstance(event, ev.TurnStart)] == ["kernel", None]
        assert len(call.arrived) == 1


def test_a_cookie_tells_a_port_that_is_used_anew():
    with Call() as call:
        call.stream_events.ask(1)
        call.say()
        call.until_arrived(CHUNK_MS)
        call.line.cookie = b"another!"
        call.say()
        wait_until(lambda: call.line.is_gone)
        assert call.arrived[-1].ms == CHUNK_MS


def test_auto_does_not_believe_a_peer_of_this_machine():
    with Call("auto") as call:
        assert call.line is None
        call.stream_events.ask(1)
        call.say()
        assert turn_of(call).ear is None
        assert not call.arrived


def test_auto_does_not_believe_a_round_trip_that_is_no_networks():
    with Call("auto") as call:
        call.ear.mode = "kernel"
        call.line = call.stream_events.line = call.new_line()
        assert call.line is not None
        call.line.doubtful = True
        call.stream_events.ask(1)
        call.say()
        wait_until(lambda: [event for event in call.arrived if event.ear == "sent"])
        call.ear.mode = "auto"
        assert call.line.is_deaf
        call.stream_events.ask(2)
        assert [event.ear for event in call.told if isinstance(event, ev.TurnStart)] == ["kernel", None]


FAR = {"server": ("192.0.2.1", 8000), "client": ("198.51.100.7", 40000), "http_version": "1.1", "headers": []}


@pytest.mark.parametrize(
    ("scope", "auto", "kernel"),
    [
        ({}, True, True),
        ({"headers": [(b"host", b"a"), (b"x-forwarded-for", b"203.0.113.9")]}, False, True),
        ({"headers": [(b"forwarded", b"for=203.0.113.9")]}, False, True),
        ({"headers": [(b"x-real-ip", b"203.0.113.9")]}, False, True),
        ({"headers": [(b"via", b"1.1 proxy")]}, False, True),
        ({"client": ("192.0.2.1", 40000)}, False, True),
        ({"server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2)}, False, True),
        ({"http_version": "2"}, False, False),
        ({"client": None}, False, False),
        ({"server": None}, False, False),
        ({"client": ("203.0.113.9", 0)}, False, False),
        ({"server": ("/run/server.sock", None)}, False, False),
        ({"server": ["192.0.2.1", 8000], "client": ["198.51.100.7", 40000]}, True, True),
        ({"server": ("localhost", 8000)}, False, False),
    ],
)
def test_whom_the_ear_believes(scope, auto, kernel):
    believed = {
        mode: Ear(mode, print).line({**FAR, **scope}) is not None for mode in ("auto", "kernel", "sent")
    }
    assert believed == {"auto": auto, "kernel": kernel, "sent": False}


def test_a_scope_that_names_no_ends_is_not_listened_to():
    assert Ear("kernel", print).line({"type": "http"}) is None


def test_the_mode_is_read_from_the_environment(caplog):
    assert [mode_of({"OMNIWATCH_EAR": mode}) for mode in ("auto", "kernel", "sent", "")] == [
        "auto",
        "kernel",
        "sent",
        "auto",
    ]
    assert not caplog.records
    assert mode_of({"OMNIWATCH_EAR": "both"}) == "auto"
    assert "expected auto, kernel or sent, got 'both'" in caplog.text


def test_a_forked_process_has_an_ear_of_its_own():
    with Call() as call:
        call.stream_events.ask(1)
        call.say()
        call.until_arrived(CHUNK_MS)
        parent = call.ear.listening
        child = os.fork()
        if not child:
            status = 1
            try:
                call.told.clear()
                call.line = call.stream_events.line = call.new_line()
                call.stream_events.ask(2)
                call.say(turn=2)
                call.until_arrived(CHUNK_MS)
                status = 0 if call.ear.listening is not parent else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        call.say(CHUNK)
        call.until_arrived(2 * CHUNK_MS)
