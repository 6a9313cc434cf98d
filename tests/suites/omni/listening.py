"""Clients of the real server. What they receive is measured by the standard library, not by code under test.

Each is a context that asks a question and gives the samples of each piece of speech as it comes. To leave the context
is to leave the server, whether or not it has finished.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from typing import Any

from websockets.sync.client import ClientConnection, connect

from helpers.scripted_tap import CHAT, REALTIME, VIDEO
from omniwatch.desk.probe.video import grey_jpeg
from suites.omni.server import MODEL

RATE_HZ = 24_000
PATIENCE_S = 240.0
FRAME_S = 0.1
Client = Callable[[int], AbstractContextManager[Iterator[int]]]


def wav_samples(text: str) -> int:
    """The samples of a base64 WAV file, which has one channel at RATE_HZ."""
    with wave.open(io.BytesIO(base64.b64decode(text, validate=True))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE_HZ)
        return len(file.readframes(file.getnframes())) // 2


@contextmanager
def chat(port: int, headers: dict[str, str] | None = None, **asked: Any) -> Iterator[Iterator[int]]:
    """`POST /v1/chat/completions`, streamed."""
    question = {"role": "user", "content": "Please count from one to twenty."}
    body = {"model": MODEL, "messages": [question], "modalities": ["text", "audio"], "stream": True} | asked
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"} | (headers or {}))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()

    def speech() -> Iterator[int]:
        for line in answer:
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                if chunk["modality"] == "audio":
                    yield wav_samples(chunk["choices"][0]["delta"]["content"])

    try:
        yield speech()
    finally:
        answer.close()
        connection.close()


@contextmanager
def realtime(port: int) -> Iterator[Iterator[int]]:
    """`WS /v1/realtime`, by turns: a second of a tone is the question."""
    tone = b"".join(struct.pack("<h", round(8000 * math.sin(n / 10))) for n in range(16_000))
    asked = (
        {"type": "session.update", "model": MODEL},
        {"type": "input_audio_buffer.commit", "final": False},
        {"type": "input_audio_buffer.append", "audio": base64.b64encode(tone).decode()},
        {"type": "input_audio_buffer.commit", "final": True},
    )
    with _connected(port, REALTIME) as link:
        for message in asked:
            link.send(json.dumps(message))

        def speech() -> Iterator[int]:
            while (said := json.loads(link.recv(PATIENCE_S)))["type"] != "response.output_audio.done":
                assert said["type"] != "error", said
                if said["type"] == "response.output_audio.delta":
                    assert (said["format"], said["sample_rate_hz"]) == ("pcm16", RATE_HZ)
                    yield len(base64.b64decode(said["audio"], validate=True)) // 2

        yield speech()


@contextmanager
def video(port: int) -> Iterator[Iterator[int]]:
    """`WS /v1/video/chat/stream`, with a camera of ten frames a second while it listens."""
    image = base64.b64encode(grey_jpeg()).decode()
    with _connected(port, VIDEO) as link:
        began = time.monotonic()
        frames = 0

        def show() -> None:
            nonlocal frames
            pts_ms = (time.monotonic() - began) * 1000
            link.send(
                json.dumps({"type": "video.frame", "data": image, "frame_id": f"f{frames}", "pts_ms": pts_ms})
            )
            frames += 1

        def speech() -> Iterator[int]:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    said = json.loads(link.recv(max(0.0, began + frames * FRAME_S - time.monotonic())))
                except TimeoutError:
                    assert time.monotonic() < deadline
                    show()
                    continue
                assert said["type"] != "error", said
                if said["type"] == "response.output_audio.done":
                    return
                if said["type"] == "response.output_audio.delta":
                    yield wav_samples(said["data"])

        link.send(json.dumps({"type": "session.config", "enable_frame_filter": False}))
        show()
        link.send(json.dumps({"type": "video.query", "text": "What do you see?"}))
        yield speech()


@contextmanager
def _connected(port: int, path: str) -> Iterator[ClientConnection]:
    with connect(
        f"ws://127.0.0.1:{port}{path}", max_size=None, compression=None, proxy=None, close_timeout=1
    ) as link:
        yield link
