"""On the real vLLM-Omni: a chat that is cut mid-speech is heard whole, and one that asks for no frames is left alone."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from http.client import HTTPConnection
from typing import Any

import pytest

from helpers.flaky_network import Listener
from helpers.scripted_tap import CHAT
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.client import Client, Config
from omniwatch.client.endpoint import Reader, Writer
from suites.omni.installation import Say
from suites.omni.listening import PATIENCE_S
from suites.omni.server import MODEL, Omni

FRAME_BYTES = 3840
"""80 ms of 24 kHz PCM16."""
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Please count from one to twenty."}],
    "modalities": ["text", "audio"],
    "stream": True,
}


class Cutting(Listener):
    """Hears a chat over connections of its own, and cuts all of them at the given frames."""

    def __init__(self, port: int, cut_at: set[int]) -> None:
        super().__init__()
        self._port = port
        self._cut_at = cut_at
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[Reader, Writer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return reader, writer

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        super().audio(frame_id, payload, play_at)
        if len(self.heard) in self._cut_at:
            for writer in self._writers:
                writer.transport.abort()


def speech_of(body: bytes) -> bytes:
    """The samples in an answer as vLLM-Omni gives it: what a client that is never cut hears."""
    found = b""
    for line in body.splitlines():
        if line.startswith(b"data: {") and (chunk := json.loads(line[6:]))["modality"] == "audio":
            file = io.BytesIO(base64.b64decode(chunk["choices"][0]["delta"]["content"], validate=True))
            with wave.open(file) as sound:
                found += sound.readframes(sound.getnframes())
    return found


def test_a_chat_that_asks_for_no_frames_passes_byte_for_byte(omni: Omni) -> None:
    connection = HTTPConnection("127.0.0.1", omni.port, timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json", "X-Copy": "passed"}
    connection.request("POST", CHAT, json.dumps(ASKED), headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    assert body.endswith(b"data: [DONE]\n\n")
    assert len(speech_of(body)) > 10 * FRAME_BYTES
    assert (omni.copies / "passed").read_bytes() == body


@pytest.mark.parametrize("cut_at", [{2}, {6, 40}, {20, 21, 22}], ids=str)
def test_a_chat_that_is_cut_mid_speech_is_heard_sample_for_sample(
    omni: Omni, cut_at: set[int], say: Say
) -> None:
    """Two turns of one seed never sound alike (vLLM-Omni 0.30 draws the residual codes from the process' own generator): the
    cut client is held to what an uncut one would have heard of its own turn, kept below the middleware."""
    name = f"cut-{len(cut_at)}"
    listener = Cutting(omni.port, cut_at)
    client = Client(
        f"http://127.0.0.1:{omni.port}",
        listener,
        name=name,
        headers={"X-Copy": name},
        config=Config(opus=False),
        connect=listener.connect,
    )
    summary = asyncio.run(client.speak(ASKED))
    assert summary.reason == "done"
    speech = speech_of((omni.copies / name).read_bytes())
    assert len(speech) > max(cut_at) * FRAME_BYTES
    assert listener.speech == speech
    assert len(summary.resumptions) >= 1
    results = [resumption.result for resumption in summary.resumptions]
    assert results.count("hit") >= 1
    assert "replay" not in results
    wait_until(lambda: any(isinstance(event, ev.TurnEnd) for event in omni.streams().get(f"name={name}", [])))
    events = omni.streams()[f"name={name}"]
    heard = sum(event.dur_ms for event in events if isinstance(event, ev.Audio))
    assert heard == pytest.approx(len(speech) / 48), "the tap hears the turn once, however often it is cut"
    assert [event.result for event in events if isinstance(event, ev.Resume)].count("hit") >= 1
    late = ", ".join(f"{resumption.late_s * 1000:.0f}" for resumption in summary.resumptions)
    say(f"  cut at frames {sorted(cut_at)}: {len(speech) // 48} ms of speech whole; late by {late} ms")
