"""An ASGI application that plays its side of dialogues in the general dialect: it awaits what a client says, and answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from helpers.scripted_tap import Step

Script = Sequence["Step | str | int | float"]
"""What the server does: an event that it sends, the type of a client's event that it awaits, a code to close with (int), seconds
to wait (float)."""


class GeneralServer:
    """Plays one script a connection, in turn; `heard` is all that clients said, `sent` what it said, with the times."""

    def __init__(self, *scripts: Script) -> None:
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self._scripts = list(scripts)

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await receive()
        await send({"type": "websocket.accept"})
        for step in self._scripts.pop(0):
            if isinstance(step, int):
                await send({"type": "websocket.close", "code": step})
                return
            if isinstance(step, str):
                if not await self._await(step, receive):
                    return
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                self.sent.append((time.monotonic(), json.loads(step.message["text"])))
                await send(step.message)
        await self._await("", receive)

    async def _await(self, kind: str, receive: Callable[[], Awaitable[Any]]) -> bool:
        """Take what the client says up to an event of that type; False where it leaves before."""
        while (message := await receive())["type"] == "websocket.receive":
            self.heard.append((time.monotonic(), json.loads(message["text"])))
            if self.heard[-1][1]["type"] == kind:
                return True
        return False
