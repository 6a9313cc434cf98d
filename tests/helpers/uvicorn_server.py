"""A real server (uvicorn) that speaks both protocols at a scripted pace."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from types import TracebackType
from typing import Any, NamedTuple

import uvicorn

from helpers.scripted_tap import CHAT, VIDEO, App, wav
from helpers.waiting import wait_until

Step = tuple[Any, ...]


def wait(seconds: float) -> Step:
    return ("wait", seconds)


def speech(ms: float) -> Step:
    return ("speech", ms)


def text(words: str) -> Step:
    return ("text", words)


def raw(words: str) -> Step:
    """Words that are sent as they are: a websocket message, or the data of a server-sent event."""
    return ("raw", words)


DIE = ("die",)
"""The application fails: the connection is cut."""
HANG = ("hang",)
"""Nothing more is sent."""
COMMENT = ("comment",)
"""A comment that keeps a chat's connection alive; over the websocket, a message that says nothing."""


class Spoken(NamedTuple):
    """A turn at the server's own time: the question's arrival, and each chunk's sending and milliseconds."""

    asked_t: float
    chunks: list[tuple[float, float]]


class Speaker:
    """An ASGI application. Each question is answered by the next script; the last one serves for all that follow."""

    def __init__(self, *scripts: list[Step], status: int = 200, kind: str = "text/event-stream") -> None:
        self.scripts = list(scripts)
        self.status = status
        self.kind = kind
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.frames: list[dict[str, Any]] = []
        self.reports: list[bytes] = []
        self.spoken: list[Spoken] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._video(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] == CHAT:
            self._note(scope)
            await self._chat(json.loads(body), send)
            return
        answer = b'{"data":[{"id":"tiny"}]}' if scope["path"] == "/v1/models" else b"{}"
        status = 200 if scope["path"] == "/v1/models" else 404
        if scope["path"] == "/omniwatch/report":
            self.reports.append(body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    def _note(self, scope: Any) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})

    async def _chat(self, question: dict[str, Any], send: Any) -> None:
        self.questions.append(question)
        spoken = self._begin()
        headers = [(b"content-type", self.kind.encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})

        async def event(data: str, field: str = "data: ") -> None:
            body = f"{field}{data}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def say(step: Step) -> None:
            if step[0] == "comment":
                await event("ping", field=": ")
            elif step[0] == "raw":
                await event(step[1])
            else:
                heard = step[0] == "speech"
                delta = {"content": wav(step[1]) if heard else step[1]}
                chunk = {"choices": [{"delta": delta}], "modality": "audio" if heard else "text"}
                await event(json.dumps(chunk))

        await _play(self._script(), say, spoken)
        await event("[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _video(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        if scope["path"] != VIDEO or self.status != 200:
            await send({"type": "websocket.close", "code": 1008})
            return
        self._note(scope)
        await send({"type": "websocket.accept"})
        asked: asyncio.Queue[Spoken] = asyncio.Queue()

        async def listen() -> None:
            while (message := await receive())["type"] != "websocket.disconnect":
                said = json.loads(message["text"])
                if said["type"] == "video.frame":
                    self.frames.append(said)
                elif said["type"] == "video.query":
                    self.questions.append(said)
                    asked.put_nowait(self._begin())

        async def answer() -> None:
            while True:
                await self._answer(send, await asked.get())

        tasks = {asyncio.ensure_future(listen()), asyncio.ensure_future(answer())}
        done, going = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in going:
            task.cancel()
        for task in done:
            task.result()

    async def _answer(self, send: Any, spoken: Spoken) -> None:
        async def tell(**message: Any) -> None:
            await send({"type": "websocket.send", "text": json.dumps(message)})

        async def say(step: Step) -> None:
            if step[0] == "comment":
                await tell(type="video.frame.ack")
            elif step[0] == "raw":
                await send({"type": "websocket.send", "text": step[1]})
            elif step[0] == "speech":
                await tell(type="response.output_audio.delta", data=wav(step[1]), format="wav")
            else:
                await tell(type="response.text.delta", delta=step[1])

        await tell(type="response.start")
        await _play(self._script(), say, spoken)
        await tell(type="response.text.done", text="")
        if spoken.chunks:
            await tell(type="response.output_audio.done")

    def _begin(self) -> Spoken:
        self.spoken.append(Spoken(time.monotonic(), []))
        return self.spoken[-1]

    def _script(self) -> list[Step]:
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]


async def _play(script: list[Step], say: Any, spoken: Spoken) -> None:
    """Do each step at its time after the question, whatever the steps before took."""
    due = spoken.asked_t
    for step in script:
        if step[0] == "wait":
            due += step[1]
            await asyncio.sleep(due - time.monotonic())
        elif step == HANG:
            await asyncio.Event().wait()
        elif step == DIE:
            raise ConnectionError("as the script says")
        else:
            if step[0] == "speech":
                spoken.chunks.append((time.monotonic(), step[1]))
            await say(step)


class Serving:
    """An application on a real port of 127.0.0.1, while the context lasts."""

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 0, **options: Any) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", access_log=False, **options)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Serving:
        self._thread.start()
        wait_until(lambda: self._server.started)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()
