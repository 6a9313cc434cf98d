"""Recordings replayed by an application on a real ASGI server, at the pace they were made at or as fast as they pass.

As a program it serves at real pace with the tap in front: `python -m helpers.recording_server PORT_FILE ACTUAL_DIRECTORY`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
import websockets

from helpers.scripted_tap import VIDEO, Step, recorded_steps
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.tap import Tap
from omniwatch.tap.audio import duration_ms

CLOSE = {"type": "websocket.close", "code": 1000}


def is_query(step: Step) -> bool:
    return '"video.query"' in step.message.get("text", "")


async def until(due: float) -> None:
    """Wait for a moment of the monotonic clock, to a small part of a millisecond."""
    while (left := due - time.monotonic()) > 0:
        await asyncio.sleep(max(0.0, left - 0.002))


class RealPace:
    """Sends what was recorded when it was recorded, counted from the last query; notes what it did and when.

    A client that asks for a `stretch` gets it all that many times as slowly.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            return
        query = parse_qs(scope["query_string"].decode())
        name, stretch = query["recording"][0], float(query.get("stretch", ["1"])[0])
        steps = recorded_steps(name)
        anchors: list[asyncio.Future[float]] = [asyncio.get_running_loop().create_future() for _ in range(9)]
        actual: list[ev.Event] = []
        asked, finished = 0, asyncio.Event()

        async def take() -> None:
            nonlocal asked
            while (message := await receive())["type"] != "websocket.disconnect":
                t, now = time.time(), time.monotonic()
                said = json.loads(message.get("text") or "{}")
                if message["type"] == "websocket.connect":
                    anchors[0].set_result(now)
                elif said.get("type") == "video.frame":
                    actual.append(ev.Video(t=t, stream=name, pts_ms=said["pts_ms"]))
                elif said.get("type") == "video.query":
                    asked += 1
                    actual.append(ev.TurnStart(t=t, stream=name, turn=asked))
                    anchors[asked].set_result(now)
                elif said.get("type") == "video.done":
                    finished.set()

        taking = asyncio.create_task(take())
        queries, recorded = 0, steps[0].t
        for step in steps:
            if step.direction == "in":
                if is_query(step):
                    queries, recorded = queries + 1, step.t
                continue
            await until(await anchors[queries] + stretch * (step.t - recorded))
            said = json.loads(step.message.get("text") or "{}")
            if said.get("type") == "response.output_audio.delta":
                dur_ms = duration_ms(said["data"], "wav")
                actual.append(ev.Audio(t=time.time(), stream=name, dur_ms=dur_ms, turn=queries))
            elif said.get("type") == "response.output_audio.done":
                actual.append(ev.TurnEnd(t=time.time(), stream=name, turn=queries, reason="completed"))
            await send(step.message)
        await finished.wait()
        await send(CLOSE)
        taking.cancel()
        (self._directory / name).write_bytes(b"".join(map(ev.encode, actual)))


async def call(port: int, name: str, paced: bool) -> tuple[list[str | bytes], list[tuple[str, str]]]:
    """Be the client of a recording; return what came back and the handshake's headers."""
    steps = recorded_steps(name)
    received: list[str | bytes] = []
    async with websockets.connect(
        f"ws://127.0.0.1:{port}{VIDEO}?recording={name}", max_size=None, compression=None
    ) as connection:
        began = time.monotonic()

        async def listen() -> None:
            async for message in connection:
                received.append(message)

        listening = asyncio.create_task(listen())
        for step in steps:
            if step.message["type"] == "websocket.receive":
                if paced:
                    await until(began + step.t - steps[0].t)
                await connection.send(step.message["text"])
        await listening
        assert connection.response is not None
        return received, list(connection.response.headers.raw_items())


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """Serve an application with uvicorn on a free port of this process; give the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio", lifespan="on"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive(), what="the server is up")
        assert server.started
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def main(port_file: Path, directory: Path) -> None:
    app = Tap(RealPace(directory))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port_file.write_text(str(listener.getsockname()[1]))
        uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio", lifespan="off")).run(
            [listener]
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
