"""Messages of `WS /v1/realtime`, and a session of it as the real server's middleware saw it."""

from __future__ import annotations

import base64
import json
from typing import Any

from helpers.scripted_tap import Step, answers, disconnect, opening, pcm16, says
from helpers.wire import WIRE


def spoken(t: float, ms: float) -> Step:
    return answers(
        t, type="response.output_audio.delta", audio=pcm16(ms), format="pcm16", sample_rate_hz=24_000
    )


def commit(t: float, **fields: Any) -> Step:
    return says(t, type="input_audio_buffer.commit", **fields)


def greeted(t: float = 0.0) -> list[Step]:
    return [*opening(t), answers(t, type="session.created", id="sess-0123456789abcdef", created=1)]


def recorded() -> list[Step]:
    """The session that a real server's middleware saw: its times and sizes, with silence of the same length."""
    steps = greeted(0.0)[:2]
    sent: list[dict[str, Any]] = [
        {"type": "session.update", "model": "m"},
        {"type": "input_audio_buffer.commit"},
    ]
    sent += [
        {"type": "input_audio_buffer.append", "audio": pcm16(800)},
        {"type": "input_audio_buffer.commit", "final": True},
    ]
    for line in (WIRE / "realtime-asgi.txt").read_text().splitlines():
        words = line.split()
        if words[2] != "/v1/realtime" or "size=" not in words[-1]:
            continue
        t, size = float(words[0]), int(words[-1].removeprefix("size="))
        if words[4] == "websocket.receive":
            steps.append(says(t, **sent.pop(0)))
        elif words[4] == "websocket.disconnect":
            steps.append(disconnect(t))
        elif words[3] == "websocket.send" and size > 1000:
            empty = len(json.dumps(json.loads(spoken(t, 0).message["text"])))
            audio = base64.b64encode(bytes((size - empty) * 3 // 4)).decode()
            steps.append(
                answers(
                    t, type="response.output_audio.delta", audio=audio, format="pcm16", sample_rate_hz=24_000
                )
            )
            assert len(steps[-1].message["text"]) == size
        elif words[3] == "websocket.send":
            steps.append(answers(t, type="transcription.delta", delta="x"))
    steps.insert(-1, answers(steps[-1].t, type="response.output_audio.done", has_audio=True))
    return steps
