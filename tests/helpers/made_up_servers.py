"""Servers that answer by a script on a clock of their own: nothing is waited for, and every delay is exact."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import selectors
import wave
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
RATE_HZ = 24_000
Step = tuple[float, "bytes | Exception"]
"""Seconds after the step before, and what is then sent or happens."""
Script = Callable[[httpx.Request, Any], "Reply"]


class Reply:
    """An answer: its status, its type, and its body in steps. The head comes with the first step."""

    def __init__(self, kind: str, steps: Sequence[Step], status: int = 200) -> None:
        self.kind = kind
        self.steps = list(steps)
        self.status = status


class _Selector(selectors.DefaultSelector):
    """Lets time pass where a loop would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is due any more: a deadlock"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when nothing else is to be done."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Callable[[Callable[[], float]], Coroutine[Any, Any, T]]) -> T:
    """Run `main(clock)` in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop.time))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Made(httpx.AsyncBaseTransport):
    """All servers as one transport, each path with its script; the question is taken in at once."""

    def __init__(self, **scripts: Script) -> None:
        self._scripts = scripts
        self.asked: list[tuple[str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = b"".join([piece async for piece in request.stream])  # type: ignore[union-attr]
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"id": "made-up"}]})
        asked = json.loads(content) if content.startswith(b"{") else content
        name = request.url.host
        self.asked.append((name, asked))
        reply = self._scripts[name](request, asked)
        steps = list(reply.steps)
        if steps:
            first_s, what = steps.pop(0)
            await asyncio.sleep(first_s)
            if isinstance(what, Exception):
                raise what
            steps.insert(0, (0.0, what))

        async def body() -> AsyncIterator[bytes]:
            for after_s, piece in steps:
                await asyncio.sleep(after_s)
                if isinstance(piece, Exception):
                    raise piece
                yield piece

        return httpx.Response(reply.status, headers={"content-type": reply.kind}, content=body())


def pcm(seconds: float) -> bytes:
    return bytes(2 * round(seconds * RATE_HZ))


def wav(seconds: float, rate_hz: int = RATE_HZ) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate_hz)
        sound.writeframes(bytes(2 * round(seconds * rate_hz)))
    return file.getvalue()


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def text(words: str, modality: str | None = None) -> bytes:
    named = {"modality": modality} if modality else {}
    return event({"choices": [{"index": 0, "delta": {"content": words}}], **named})


def speech(sound: bytes, stated_hz: int | None = RATE_HZ) -> bytes:
    said = {} if stated_hz is None else {"audio_metadata": {"format": "wav", "sample_rate_hz": stated_hz}}
    delta = {"content": base64.b64encode(sound).decode()}
    return event({"choices": [{"index": 0, "delta": delta, **said}], "modality": "audio"})


def usage(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": tokens}})


def stream(*steps: Step) -> Reply:
    """An answer as server-sent events."""
    return Reply("text/event-stream", steps)


def always(reply: Reply) -> Script:
    return lambda request, asked: reply
