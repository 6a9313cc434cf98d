"""A model server that answers chats, behind the tap, on a real web server: until SIGUSR1 with speech, then with status 500.

python tests/suites/chaos/chat_server.py ADDRESS EVENTS
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from pathlib import Path
from typing import Any

import uvicorn

from omniwatch.tap import Tap

PAGE = Path(__file__).resolve().parents[2] / "data" / "wire" / "vllm-omni-metrics.txt"
SPEECH = base64.b64encode(bytes(2 * 24_000)).decode()
"""A second of 16-bit samples."""
CHUNK = {"choices": [{"delta": {"content": SPEECH}}], "modality": "audio"}
EVENT_STREAM = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()


class Engine:
    """The web server's application; it goes on answering when the engine is dead."""

    def __init__(self) -> None:
        self.dead = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        status, kind, body = 200, b"text/plain; version=0.0.4", PAGE.read_bytes()
        if scope["method"] == "POST":
            kind, body = b"text/event-stream", EVENT_STREAM
            if self.dead:
                status, kind, body = 500, b"application/json", b'{"error": {"code": 500}}'
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main(address: str, events: str) -> None:
    engine = Engine()

    def die(number: int, frame: object) -> None:
        engine.dead = True

    signal.signal(signal.SIGUSR1, die)
    host, _, port = address.partition(":")
    tap = Tap(engine, environ={"OMNIWATCH_EVENTS": events})
    uvicorn.run(tap, host=host, port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
