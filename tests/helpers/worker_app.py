"""A chat server for several processes, behind the tap: `uvicorn helpers.worker_app:app`. Each notes every line that it writes.

In the folder WORKER_NOTES, a process appends a byte to PID.begun before each line of the event file, and one to PID.done after it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from helpers.scripted_tap import body, response, wav
from omniwatch.events import Event
from omniwatch.tap import Tap, writer
from omniwatch.tap.spool import Spool

CHUNKS = 5
SPOKEN = (
    b"data: "
    + json.dumps({"choices": [{"delta": {"content": wav(80)}}], "modality": "audio"}).encode()
    + b"\n\n"
)


class NotedSpool(Spool):
    """A spool whose lines are counted beside it, so that a reader's count can be checked."""

    def write(self, event: Event) -> None:
        _note("begun")
        super().write(event)
        _note("done")


def _note(what: str) -> None:
    path = Path(os.environ["WORKER_NOTES"]) / f"{os.getpid()}.{what}"
    with path.open("ab") as file:
        file.write(b".")


async def chat(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for what in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{what}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send(response(0).message)
    for _ in range(CHUNKS):
        await send(body(0, SPOKEN).message)
    await send(body(0, b"data: [DONE]\n\n", more=False).message)


writer.Spool = NotedSpool  # type: ignore[misc]
app = Tap(chat)
