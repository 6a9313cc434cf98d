"""A layer of middleware that keeps what the application below it answers, byte for byte, for a chat that asks for it.

The header `x-copy: NAME` names a file in the directory that COPIES names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"


class Below:
    """Between the application and the layer under test."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._directory = Path(os.environ["COPIES"])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ())) if scope.get("path") == CHAT else {}
        name = headers.get(b"x-copy", b"").decode()
        if not name:
            await self._app(scope, receive, send)
            return
        self._directory.mkdir(exist_ok=True)
        with (self._directory / name).open("wb", buffering=0) as file:

            async def copied_send(message: Any) -> None:
                file.write(message.get("body", b""))
                await send(message)

            await self._app(scope, receive, copied_send)
