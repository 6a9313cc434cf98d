"""The ear behind a real server: what clients of each protocol have, over connections that are kept, compressed, slow or lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import websockets

from helpers.scripted_tap import CHAT, VIDEO, read_events
from helpers.uvicorn_server import Serving, Speaker, Step, speech, text, wait
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch import frames
from omniwatch.resume import Resume
from omniwatch.tap import Tap

SPOKEN: list[Step] = [
    wait(0.1),
    text("Well."),
    *[step for _ in range(6) for step in (wait(0.08), speech(320))],
]
QUESTION = json.dumps({"stream": True, "modalities": ["text", "audio"], "messages": []})
TOTAL_MS = 6 * 320.0


class Served:
    """A server with an ear, and what it told."""

    def __init__(self, port: int, path: Path) -> None:
        self.port = port
        self._path = path

    def told(self) -> list[ev.AnyEvent]:
        return read_events(self._path)

    def turns(self) -> list[ev.TurnStart]:
        return [event for event in self.told() if isinstance(event, ev.TurnStart)]

    def arrived(self) -> dict[ev.Turn, list[ev.Arrived]]:
        found: dict[ev.Turn, list[ev.Arrived]] = {turn.turn: [] for turn in self.turns()}
        for event in self.told():
            if isinstance(event, ev.Arrived):
                found[event.turn].append(event)
        return found

    def until_all_arrived(self, turns: int = 1, ms: float = TOTAL_MS) -> dict[ev.Turn, list[ev.Arrived]]:
        def arrived() -> bool:
            found = list(self.arrived().values())
            return len(found) == turns and all(one and one[-1].ms == ms for one in found)

        wait_until(arrived, what="all speech arrived")
        assert {turn.ear for turn in self.turns()} == {"kernel"}
        return self.arrived()


@contextmanager
def serving(tmp_path: Path, *, resume: bool = False, script: list[Step] = SPOKEN) -> Iterator[Served]:
    path = tmp_path / "events.jsonl"
    environ = {"OMNIWATCH_EVENTS": str(path), "OMNIWATCH_EAR": "kernel"}
    app: Any = Tap(Speaker(script), environ=environ)
    if resume:
        app = Resume(app, emit=lambda _: None, environ={})
    with Serving(app) as server:
        yield Served(server.port, path)


def asked(connection: http.client.HTTPConnection, **headers: str) -> http.client.HTTPResponse:
    connection.request("POST", CHAT, QUESTION, headers)
    return connection.getresponse()


def test_each_turn_of_a_kept_alive_connection_arrives(tmp_path):
    with serving(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        for turn in range(1, 3):
            asked(connection).read()
            server.until_all_arrived(turn)
        connection.close()
    for told in server.arrived().values():
        assert [event.ms for event in told if event.ms] == sorted({event.ms for event in told if event.ms})


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_speech_over_a_websocket_arrives_compressed_or_not(tmp_path, compression):
    async def listen(port: int) -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}{VIDEO}", compression=compression) as client:
            for _ in range(2):
                await client.send(json.dumps({"type": "video.query", "text": "well?"}))
                async for message in client:
                    if json.loads(message)["type"] == "response.output_audio.done":
                        break

    with serving(tmp_path) as server:
        asyncio.run(listen(server.port))
        server.until_all_arrived(2)


def slow_socket(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    return client


def test_what_a_slow_client_has_not_taken_has_not_arrived(tmp_path):
    with (
        serving(tmp_path, script=[wait(0.1), *[speech(320)] * 12]) as server,
        slow_socket(server.port) as client,
    ):
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(QUESTION)}\r\n\r\n"
        client.sendall(head.encode() + QUESTION.encode())
        handed = 12 * 320.0
        wait_until(lambda: sum(isinstance(event, ev.Audio) for event in server.told()) == 12)
        wait_until(lambda: any(event.waiting for one in server.arrived().values() for event in one))
        assert all(event.ms < handed for one in server.arrived().values() for event in one)
        while not client.recv(65536).endswith(b"0\r\n\r\n"):
            pass
        server.until_all_arrived(ms=handed)


class Returning:
    """A client of frames that stops to read, loses its connection and comes back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.last_good_id = -1
        self.stream = ""

    def _answer(self, client: socket.socket) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(client)
        answer.begin()
        return answer

    def listen(self, until_id: int) -> None:
        """Ask, read some frames, leave the rest unread, and reset the connection."""
        with slow_socket(self._port) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\naccept: {frames.MEDIA_TYPE}\r\ncontent-length: {len(QUESTION)}\r\n\r\n"
            client.sendall(head.encode() + QUESTION.encode())
            answer = self._answer(client)
            self.stream = answer.headers["x-omni-resume"]
            self._read(answer, until_id)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    def come_back(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        body = json.dumps({"last_good_id": self.last_good_id, "stream": self.stream})
        connection.request("POST", "/v1/resume", body)
        answer = connection.getresponse()
        assert answer.status == 206
        self._read(answer, None)
        connection.close()

    def _read(self, answer: http.client.HTTPResponse, until_id: int | None) -> None:
        decoder = frames.Decoder()
        while piece := answer.read1(512):
            for frame in decoder.feed(piece):
                if frame.kind == frames.Kind.SPEECH:
                    self.last_good_id = frame.frame_id
            if until_id is not None and self.last_good_id >= until_id:
                return


def test_speech_of_a_client_that_comes_back_arrives_once(tmp_path):
    with serving(tmp_path, resume=True) as server:
        client = Returning(server.port)
        client.listen(until_id=5)
        wait_until(lambda: any(isinstance(event, ev.TurnEnd) for event in server.told()))
        before = [event.ms for told in server.arrived().values() for event in told]
        assert max(before, default=0) < TOTAL_MS
        client.come_back()
        assert client.last_good_id == TOTAL_MS / 80 - 1
        (told,) = server.until_all_arrived().values()
    assert [event.ms for event in told] == sorted(event.ms for event in told)
    assert any(event.ms >= 6 * 80.0 for event in told[:-1]), "the frames that the client named"


def test_while_the_client_is_away_it_is_said_each_second_what_it_has(tmp_path):
    with serving(tmp_path, resume=True) as server:
        client = Returning(server.port)
        client.listen(until_id=5)
        wait_until(lambda: any(isinstance(event, ev.TurnEnd) for event in server.told()))
        over = next(event.t for event in server.told() if isinstance(event, ev.TurnEnd))
        (told,) = wait_until(
            lambda: [one for one in server.arrived().values() if one and one[-1].t > over + 2.5]
        )
        assert all(b.t - a.t < 2.0 for a, b in pairwise(told))
        assert told[-1].ms < TOTAL_MS
        assert told[-1].ear is None


@pytest.mark.parametrize("accept", [frames.MEDIA_TYPE, "text/event-stream;omniwatch=resume"])
def test_behind_resumption_both_forms_of_an_answer_arrive(tmp_path, accept):
    with serving(tmp_path, resume=True) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        asked(connection, accept=accept).read()
        server.until_all_arrived()
        connection.close()
