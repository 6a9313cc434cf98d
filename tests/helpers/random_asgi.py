"""Connections made up from a seed: what clients and servers say, sound and malformed, whole and cut off."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

from helpers.scripted_tap import (
    CHAT,
    REALTIME,
    VIDEO,
    Step,
    answers,
    body,
    opening,
    pcm16,
    request,
    response,
    says,
    wav,
)
from omniwatch.tap.asgi import Message


class Case:
    """A connection: its steps, the one at which the client is gone, the one at which the application fails."""

    def __init__(
        self, path: str, steps: list[Step], gone: int | None = None, fails: int | None = None
    ) -> None:
        self.path = path
        self.steps = steps
        self.gone = len(steps) if gone is None else gone
        self.fails = fails


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Malformed in one of the ways that a wire can be."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [
            data[:at],
            data[at:],
            data[:at] + rng.randbytes(3) + data[at:],
            data.replace(b'"', b"'", 1),
            data.replace(b":", b"", 1),
            data + data,
            b"\x00" + data,
            data.replace(b"}", b"]", 1),
        ]
    )


def some_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            True,
            -1,
            0,
            2**70,
            1e300,
            "",
            "x",
            "\x7f",
            "\x7f5",
            "é" * 600,
            "a" * 20_000,
            '"\\' * 800,
            [],
            {},
            [{}],
            pcm16(40),
        ]
    )


def noise(ms: float) -> str:
    """Base64 of a WAV file in which each sample can be told from the others."""
    silent = base64.b64decode(wav(ms))
    return base64.b64encode(silent[:44] + random.Random(ms).randbytes(len(silent) - 44)).decode()


GENERAL_GREETING = {
    "type": "session.created",
    "session": {"type": "realtime", "id": "sess_0123456789abcdef"},
}
VOCABULARY: dict[str, list[dict[str, Any]]] = {
    VIDEO: [
        {"type": "video.frame", "data": "/9j/" + "A" * 300, "frame_id": "f1", "pts_ms": 100},
        {"type": "video.query", "text": "what is this?"},
        {"type": "session.config", "modalities": ["text", "audio"]},
        {"type": "response.start"},
        {"type": "response.output_audio.delta", "data": wav(240), "format": "wav"},
        {"type": "response.audio.delta", "data": wav(2000, data_size=0xFFFFFFFF)},
        {"type": "response.output_audio.done"},
        {"type": "response.text.delta", "delta": "word"},
        {"type": "error", "message": "Query processing failed"},
        {"type": "session.done"},
    ],
    REALTIME: [
        {"type": "session.created", "id": "sess-0123456789abcdef"},
        {"type": "session.created", "session": {"id": "duplex-0123456789abcdef"}},
        {
            "type": "session.resume",
            "session_id": "duplex-0123456789abcdef",
            "last_received_server_event_seq": 3,
        },
        {"type": "session.resumed", "session_id": "duplex-0123456789abcdef", "session": {"id": "x" * 20}},
        {"type": "session.resync_required", "reason": "journal_gap"},
        {"type": "input_audio_buffer.append", "audio": pcm16(100)},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.commit", "final": True},
        {"type": "response.create"},
        {"type": "response.created", "response_id": "r1"},
        {
            "type": "response.output_audio.delta",
            "audio": pcm16(2000),
            "format": "pcm16",
            "sample_rate_hz": 24000,
        },
        {
            "type": "response.output_audio.delta",
            "delta": pcm16(80),
            "response_id": "r1",
            "metadata": {"audio_duration_ms": 80},
        },
        {"type": "response.output_audio.done", "has_audio": True},
        {"type": "response.done", "response_id": "r1", "response": {"status": "cancelled"}},
        {"type": "response.listen"},
        {"type": "playback.ack", "played_ms": 500},
        {"type": "session.closed", "reason": "idle"},
        GENERAL_GREETING,
        {"type": "session.updated", "session": {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}},
        {"type": "response.create", "event_id": "one", "response": {"conversation": "none"}},
        {"type": "response.created", "response": {"id": "r1", "conversation_id": None}},
        {"type": "response.output_item.added", "response_id": "r1", "item": {"id": "i1", "type": "message"}},
        {"type": "response.output_audio.delta", "delta": pcm16(80), "response_id": "r1", "item_id": "i1"},
        {"type": "input_audio_buffer.speech_started"},
        {"type": "input_audio_buffer.speech_stopped"},
        {"type": "input_audio_buffer.committed"},
        {"type": "conversation.item.truncate", "item_id": "i1", "audio_end_ms": 40},
        {"type": "output_audio_buffer.clear"},
        {"type": "response.cancel"},
        {"type": "error", "error": {"code": "response_already_active", "event_id": "one"}},
        {"type": "error", "error": {"code": "session_resume_expired"}, "code": "processing_error"},
    ],
    CHAT: [
        {"choices": [{"index": 0, "delta": {"content": noise(80)}}], "modality": "audio"},
        {
            "choices": [
                {
                    "index": 1,
                    "delta": {"content": noise(2000)},
                    "audio_metadata": {"frame_count": 1920, "sample_rate_hz": 24000},
                }
            ],
            "modality": "audio",
        },
        {"choices": [{"index": 0, "delta": {"content": "word"}}], "modality": "text"},
        {"choices": [], "usage": {"total_tokens": 5}},
        {"error": {"message": "broken"}},
    ],
}
"""What clients and servers say; sides are mixed up on purpose."""


def some_json(rng: random.Random, path: str) -> bytes:
    message = dict(rng.choice(VOCABULARY[path]))
    if rng.random() < 0.3:
        message[rng.choice([*message, "extra"])] = some_value(rng)
    data = json.dumps(message, ensure_ascii=rng.random() < 0.5).encode()
    return mangled(rng, data) if rng.random() < 0.2 else data


def some_websocket(rng: random.Random, path: str) -> list[Step]:
    steps = opening()
    if path == REALTIME and rng.random() < 0.4:
        # Else few sessions would be of the general dialect.
        steps.append(answers(0, **GENERAL_GREETING))
    for _ in range(rng.randrange(30)):
        inward = rng.random() < 0.5
        kind = "websocket.receive" if inward else "websocket.send"
        data = some_json(rng, path)
        message: Message = {"type": kind, "text": data.decode("latin-1")}
        if rng.random() < 0.05:
            message = rng.choice(
                [{"type": kind, "bytes": data}, {"type": kind, "text": None, "bytes": data}, {"type": kind}]
            )
        steps.append(Step(0, "in" if inward else "out", message))
    steps.append(
        rng.choice(
            [
                Step(0, "out", {"type": "websocket.close", "code": 1000}),
                says(0, type="x"),
                answers(0, type="x"),
            ]
        )
    )
    return steps


def some_chat(rng: random.Random) -> list[Step]:
    asked: dict[str, Any] = {
        "stream": True,
        "messages": [{"content": base64.b64encode(rng.randbytes(50)).decode()}],
    }
    for name, value in (
        ("user", "ada"),
        ("modalities", ["text", "audio"]),
        ("modalities", ["text"]),
        ("audio", {"format": "pcm16"}),
    ):
        if rng.random() < 0.3:
            asked[name] = value if rng.random() < 0.7 else some_value(rng)
    data = json.dumps(asked).encode()
    steps = request(0, mangled(rng, data) if rng.random() < 0.2 else data, cut=rng.choice([1, 1, 3]))
    steps.append(
        response(
            0, rng.choice([200, 200, 200, 400, 500]), rng.choice(["text/event-stream", "application/json"])
        )
    )
    stream = b"".join(
        b"data: " + some_json(rng, CHAT) + rng.choice([b"\n\n", b"\r\n\r\n"])
        for _ in range(rng.randrange(12))
    )
    stream += rng.choice([b"data: [DONE]\n\n", b"data: {", b""])
    while stream:
        size = rng.choice([1, 100, 5_000, 200_000]) if len(stream) < 300 else rng.choice([5_000, 200_000])
        steps.append(body(0, stream[:size]))
        stream = stream[size:]
    steps.append(rng.choice([body(0, b"", more=False), Step(0, "out", {"type": "http.response.body"})]))
    return steps


def generated(seed: int) -> Case:
    """A connection made up from a seed: sound, malformed, cut off, or with an application that fails."""
    rng = random.Random(seed)
    path = rng.choice([VIDEO, REALTIME, CHAT])
    steps = some_chat(rng) if path == CHAT else some_websocket(rng, path)
    gone = rng.randrange(len(steps)) if rng.random() < 0.4 else None
    fails = rng.randrange(len(steps)) if rng.random() < 0.2 else None
    return Case(path, steps, gone, fails)
