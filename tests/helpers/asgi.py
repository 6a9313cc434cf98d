"""One HTTP exchange with an ASGI application, without a server: the client's side, in a test's hands."""

from __future__ import annotations

import asyncio
import json
import wave
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from typing import Any

from helpers.spoken import AtOnce
from omniwatch import events, frames
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.frames import Frame, Kind
from omniwatch.resume import Resume


class Exchange:
    """A request under way. `body` grows as the application sends; `gate`, while it is not set, holds up sending.

    `request` has the messages that the application has not received yet, the next one last.
    """

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        peer: str = "10.0.0.1",
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.messages: list[dict[str, Any]] = []
        self.ended = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.request = [{"type": "http.request", "body": body, "more_body": False}]
        self._left = asyncio.Event()
        self._grew = asyncio.Event()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": b"",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()],
            "client": (peer, 50_000),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self.request:
            return self.request.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.gate.wait()
        assert not self.ended, f"after the end: {message}"
        self.messages.append(message)
        if message["type"] == "http.response.start":
            assert not self.status, "two heads"
            self.status = message["status"]
            self.raw_headers = list(message["headers"])
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            assert self.status, "a body before the head"
            self.body += message.get("body", b"")
            self.ended = not message.get("more_body", False)
        self._grew.set()

    def leave(self) -> None:
        """The client's connection is gone."""
        self._left.set()

    @property
    def has_left(self) -> bool:
        """Whether the client has."""
        return self._left.is_set()

    async def until(self, condition: Callable[[Exchange], bool], timeout: float = 600.0) -> Exchange:
        """Wait until what was sent meets a condition, or the exchange is over."""

        async def met() -> None:
            while not condition(self) and not self.task.done():
                self._grew.clear()
                await asyncio.wait(
                    {self.task, grew := asyncio.ensure_future(self._grew.wait())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                grew.cancel()

        await asyncio.wait_for(met(), timeout)
        assert condition(self), f"over without: {self.status} {self.body[:200]!r}"
        return self

    async def over(self) -> Exchange:
        """Wait until the application has returned."""
        await self.task
        return self

    @property
    def frames(self) -> list[Frame]:
        """What was sent, as frames."""
        return list(frames.Decoder().feed(self.body))

    @property
    def places(self) -> list[tuple[int, int]]:
        """The (frame_id, part) of all frames that have a place."""
        return [(f.frame_id, f.part) for f in self.frames if f.kind != Kind.IDLE]

    @property
    def speech_ids(self) -> list[int]:
        return [f.frame_id for f in self.frames if f.kind == Kind.SPEECH]

    @property
    def speech(self) -> bytes:
        return b"".join(f.payload for f in self.frames if f.kind == Kind.SPEECH)

    @property
    def text(self) -> str:
        return b"".join(f.payload for f in self.frames if f.kind == Kind.TEXT).decode()

    @property
    def end_reason(self) -> str | None:
        ends = [json.loads(bytes(f.payload))["reason"] for f in self.frames if f.kind == Kind.END]
        return ends[-1] if ends else None

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"]["message"])


def chat(app: Any, seed: int = 1, accept: str | None = frames.MEDIA_TYPE, **options: Any) -> Exchange:
    headers = options.pop("headers", {}) | ({"Accept": accept} if accept else {})
    body = json.dumps({"stream": True, "seed": seed, "modalities": ["text", "audio"]}).encode()
    return Exchange(app, "POST", "/v1/chat/completions", headers=headers, body=body, **options)


def post(app: Any, path: str, body: Any, **options: Any) -> Exchange:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(app, "POST", path, body=data, **options)


def resume(app: Any, stream: str, last_good_id: int, **fields: Any) -> Exchange:
    peer = fields.pop("peer", "10.0.0.1")
    return post(app, "/v1/resume", {"stream": stream, "last_good_id": last_good_id} | fields, peer=peer)


def wav_pcm(data: bytes) -> bytes:
    with wave.open(BytesIO(data)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (24_000, 1, 2)
        return sound.readframes(sound.getnframes())


def heard(body: bytes) -> tuple[bytes, str]:
    """What an ordinary client makes of a streamed chat."""
    pcm, text = b"", ""
    for event in body.split(b"\n\n"):
        data = b"".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
        if not data.startswith(b"{"):
            continue
        said = json.loads(data)
        if not said["choices"]:
            continue
        content = said["choices"][0]["delta"].get("content") or ""
        if said["modality"] == "audio":
            pcm += wav_pcm(b64decode(content))
        else:
            text += content
    return pcm, text


def resuming(speaker: Any = None, **options: Any) -> tuple[Resume, FakeServer, list[events.Event]]:
    speaker = speaker or FakeServer()
    options.setdefault("thread", AtOnce)
    said: list[events.Event] = []
    return Resume(speaker, emit=said.append, clock=lambda: 1000.0, **options), speaker, said


def frame_count(count: int) -> Any:
    return lambda exchange: len(exchange.speech_ids) >= count
