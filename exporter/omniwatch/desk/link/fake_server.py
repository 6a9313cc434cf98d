"""A stand-in for the model server: an ASGI application that speaks noise as vLLM-Omni 0.30 does, at a given pace."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from omniwatch.media import wav
from omniwatch.tap.asgi import Message, Receive, Scope, Send


@dataclass
class FakeServer:
    """Each turn is `speech_s` long, made `speed` times as fast as it is heard, in chunks of `chunk_frames` of 80 ms.

    The first chunk of `chunk_frames` is the first sent, the last one repeats. What is said depends on the request's
    `seed` alone. `first_s` passes before the first chunk.
    """

    speech_s: float = 8.0
    speed: float = 2.0
    first_s: float = 0.3
    chunk_frames: tuple[int, ...] = (4,)
    rate_hz: int = 24_000
    tail_samples: int = 700
    words_per_chunk: int = 1
    fail_after: int | None = None
    """Raise after so many chunks."""
    turns: int = 0
    left: int = 0
    """Turns whose client was seen to leave."""
    made_at: dict[int, list[float]] = field(default_factory=dict)
    """For each seed, when each frame was made (loop time)."""

    def speech(self, seed: int) -> bytes:
        """Return the PCM16 samples of one turn; the last frame is a short one."""
        return _noise(seed, int(self.speech_s * self.rate_hz) + self.tail_samples)

    def text(self, seed: int) -> str:
        """Return the text of one turn."""
        return "".join(words for _, words in self._chunks(seed))

    def _chunks(self, seed: int) -> Iterator[tuple[bytes, str]]:
        pcm, start, number = self.speech(seed), 0, 0
        frame = self.rate_hz * 80 // 1000 * 2
        while start < len(pcm):
            size = frame * self.chunk_frames[min(number, len(self.chunk_frames) - 1)]
            words = "".join(f" word{seed}.{number}.{i}" for i in range(self.words_per_chunk))
            yield pcm[start : start + size], words
            start += size
            number += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one chat (or the server's start and stop, or whoever asks for its health)."""
        if scope["type"] == "lifespan":
            for done in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{done}.complete"})
            return
        if scope["method"] == "GET":
            headers = [(b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        request = json.loads(body + message.get("body", b"") or b"{}")
        self.turns += 1
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-model", b"speaker")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await self._speak(int(request.get("seed", 0)), send, gone)
        finally:
            gone.cancel()

    async def _speak(self, seed: int, send: Send, gone: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        made_at = self.made_at[seed] = []
        await send(_event({"role": "assistant", "content": ""}, "text"))
        due = loop.time() + self.first_s
        for number, (pcm, words) in enumerate(self._chunks(seed)):
            if number == self.fail_after:
                raise RuntimeError("the speaker fails, as it was told to")
            await asyncio.wait({gone}, timeout=max(0.0, due - loop.time()))
            if gone.done():
                self.left += 1
                return
            for word in words.split():
                await send(_event({"content": f" {word}"}, "text"))
            frames = len(pcm) // 2
            made_at += [loop.time()] * -(-frames * 1000 // (80 * self.rate_hz))
            sound = b64encode(wav.header(self.rate_hz, 1, len(pcm)) + pcm).decode()
            meta = {"format": "wav", "sample_rate_hz": self.rate_hz, "frame_count": frames, "channels": 1}
            await send(_event({"role": "assistant", "content": sound}, "audio", audio_metadata=meta))
            due += frames / self.rate_hz / self.speed
        await send(_event({"content": ""}, "text", finish_reason="stop"))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@lru_cache(maxsize=16)
def _noise(seed: int, samples: int) -> bytes:
    return random.Random(seed).randbytes(2 * samples)


def _event(delta: dict[str, Any], modality: str, **more: Any) -> Message:
    choice = {"index": 0, "delta": delta, "finish_reason": None} | more
    said = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], "modality": modality}
    body = b"data: %s\n\n" % json.dumps(said).encode()
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
