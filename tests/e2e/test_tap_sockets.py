"""With and without the tap over real sockets: the same bytes; a client that leaves is seen to leave."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from pathlib import Path

import pytest
import websockets

from helpers.recording_server import CLOSE, call, serving
from helpers.scripted_tap import (
    CHAT,
    VIDEO,
    acted,
    body,
    read_events,
    recorded_steps,
    response,
    sse_recording,
    wav,
)
from helpers.waiting import wait_until
from helpers.wire import EXPECTED, WIRE
from omniwatch import events as ev
from omniwatch.tap import Tap
from omniwatch.tap.report import PATH as REPORT

SPOKEN = (
    b"data: "
    + json.dumps({"choices": [{"delta": {"content": wav(80)}}], "modality": "audio"}).encode()
    + b"\n\n"
)


async def app(scope, receive, send):
    """Replays the recording that the query names; on chat, the file that the request names, in pieces."""
    if scope["type"] == "websocket":
        name = scope["query_string"].decode().partition("=")[2]
        await acted(recorded_steps(name))(scope, receive, send)
        await send(CLOSE)
    elif scope["type"] == "http":
        request = b""
        while True:
            message = await receive()
            request += message["body"]
            if not message["more_body"]:
                break
        size = json.loads(request)["piece"]
        stream = sse_recording() if json.loads(request)["speech"] else (WIRE / "chat-text.sse").read_bytes()
        await send(response(0).message)
        for at in range(0, len(stream), size):
            await send(body(0, stream[at : at + size]).message)
        await send(body(0, b"", more=False).message)
    else:
        await until_shutdown(receive, send)


async def until_shutdown(receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def behind(path: Path) -> Tap:
    return Tap(app, environ={"OMNIWATCH_EVENTS": str(path)})


@pytest.fixture(params=["sound", "full", "missing"])
def spool(request, tmp_path):
    missing = tmp_path / "no" / "events.jsonl"
    return {"sound": tmp_path / "events.jsonl", "full": Path("/dev/full"), "missing": missing}[request.param]


def unmarked(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without what differs from one response to the next, and without the one header that the tap adds."""
    changing = ("date", "sec-websocket-accept", "x-omniwatch-stream")
    return sorted((name.lower(), value) for name, value in headers if name.lower() not in changing)


def test_websockets_answer_the_same(spool):
    with serving(app) as bare, serving(behind(spool)) as tapped:
        for name in EXPECTED:
            plain, headers = asyncio.run(call(bare, name, paced=False))
            seen, marked = asyncio.run(call(tapped, name, paced=False))
            assert seen == plain
            assert plain
            assert unmarked(marked) == unmarked(headers)
            assert {name.lower() for name, _ in marked} - {name.lower() for name, _ in headers} == {
                "x-omniwatch-stream"
            }


def chat(port: int, **asked: object) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", CHAT, json.dumps({"stream": True} | asked))
    answer = connection.getresponse()
    found = answer.status, answer.getheaders(), answer.read()
    connection.close()
    return found


def test_chats_answer_the_same(spool):
    with serving(app) as bare, serving(behind(spool)) as tapped:
        for speech in (True, False):
            for piece in (99, 4096, 128_000):
                plain = chat(bare, speech=speech, piece=piece)
                seen = chat(tapped, speech=speech, piece=piece)
                assert seen[0] == plain[0] == 200
                assert seen[2] == plain[2]
                assert unmarked(seen[1]) == unmarked(plain[1])


def test_the_header_of_a_chat_addresses_its_report(tmp_path):
    path = tmp_path / "events.jsonl"
    with serving(behind(path)) as port:
        _, headers, _ = chat(port, speech=True, piece=128_000)
        (token,) = [value for name, value in headers if name == "x-omniwatch-stream"]
        statuses = []
        for data in (
            json.dumps({"stream": token, "rtt_ms": 0.5}),
            json.dumps({"stream": token, "rtt_ms": 640_000}),
            "{",
            json.dumps({"stream": "x", "rtt_ms": 1}),
            " " * 2000,
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", REPORT, data)
            statuses.append(connection.getresponse().status)
            connection.close()
    assert statuses == [204, 400, 400, 404, 413]
    events = read_events(path)
    (rtt,) = [event for event in events if isinstance(event, ev.Rtt)]
    (turn,) = [event for event in events if isinstance(event, ev.TurnStart)]
    assert (rtt.stream, rtt.turn, rtt.rtt_ms) == (turn.stream, turn.turn, 0.5)
    assert turn.stream == "127.0.0.1"


async def endless(scope, receive, send):
    """Speaks until its client leaves, as a server does that listens for that beside."""
    if scope["type"] == "lifespan":
        await until_shutdown(receive, send)
        return
    leaving = asyncio.Event()

    async def listen() -> None:
        while not (await receive())["type"].endswith("disconnect"):
            pass
        leaving.set()

    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send(response(0).message)
        chunk = body(0, SPOKEN).message
    else:
        await receive()
        await send({"type": "websocket.accept"})
        chunk = {
            "type": "websocket.send",
            "text": json.dumps({"type": "response.audio.delta", "data": wav(80)}),
        }
    listening = asyncio.create_task(listen())
    while not leaving.is_set():
        try:
            await send(chunk)
        except OSError:
            break
        await asyncio.wait({listening}, timeout=0.02)
    listening.cancel()


def ends(path: Path) -> list[str]:
    return [event.reason for event in read_events(path) if isinstance(event, ev.TurnEnd)]


def test_a_chat_client_that_leaves_mid_speech_aborts_its_turn(tmp_path):
    path = tmp_path / "events.jsonl"
    with serving(Tap(endless, environ={"OMNIWATCH_EVENTS": str(path)})) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            asked = b'{"stream": true}'
            client.sendall(
                b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
                % (CHAT.encode(), len(asked), asked)
            )
            received = b""
            while received.count(b"data: ") < 3:
                received += client.recv(65536)
        wait_until(lambda: ends(path))
        assert ends(path) == ["aborted"]


def test_a_websocket_client_that_leaves_mid_speech_aborts_its_turn(tmp_path):
    path = tmp_path / "events.jsonl"

    async def leave_early(port: int) -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}{VIDEO}") as connection:
            for _ in range(3):
                await connection.recv()

    with serving(Tap(endless, environ={"OMNIWATCH_EVENTS": str(path)})) as port:
        asyncio.run(leave_early(port))
        wait_until(lambda: ends(path))
    assert ends(path) == ["aborted"]
    assert isinstance(read_events(path)[-1], ev.StreamEnd)
