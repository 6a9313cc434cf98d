"""Two layers of middleware around the tap, in the server's process: what the tap costs, on the server's own clock.

    --middleware stopwatch.Inside --middleware omniwatch.tap.Tap --middleware stopwatch.Outside

A chat request with the header `x-arm: bare` goes past the tap, one with `x-arm: tapped` through it; both are timed alike
and noted, a JSON object a line, in the file that STOPWATCH names. All others pass as if there were no stopwatch.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

KEY = "stopwatch"
SPEECH = b'"modality":"audio"'


class Times:
    """One request, in seconds of `time.perf_counter`."""

    def __init__(self, arm: str) -> None:
        self.arm = arm
        self.asked = 0.0
        """The request was complete, outside."""
        self.first_audio = 0.0
        """The first speech was handed to the network, outside."""
        self.between = 0.0
        """Spent between the two layers up to then, on all messages of both directions."""
        self.passed = 0.0
        """When the message on its way passed the layer before."""


class Outside:
    """Nearest to the network. `app` is the tap."""

    def __init__(self, app: Any) -> None:
        self._tap = app
        self._path = Path(os.environ["STOPWATCH"])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        arm = dict(scope.get("headers", ())).get(b"x-arm", b"").decode()
        if not arm:
            await self._tap(scope, receive, send)
            return
        times = Times(arm)

        async def timed_receive() -> Any:
            message = await receive()
            times.passed = time.perf_counter()
            if message["type"] == "http.request" and not message.get("more_body"):
                times.asked = times.passed
            return message

        async def timed_send(message: Any) -> None:
            if not times.first_audio:
                now = time.perf_counter()
                times.between += now - times.passed
                if SPEECH in message.get("body", b""):
                    times.first_audio = now
            await send(message)

        app = self._tap if arm == "tapped" else self._tap.app
        scope[KEY] = times
        await app(scope, timed_receive, timed_send)
        line = {
            "arm": arm,
            "first_audio_ms": (times.first_audio - times.asked) * 1000,
            "between_ms": times.between * 1000,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class Inside:
    """Nearest to the application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        times: Times | None = scope.get(KEY)
        if times is None:
            await self._app(scope, receive, send)
            return

        async def timed_receive() -> Any:
            message = await receive()
            if not times.first_audio:
                times.between += time.perf_counter() - times.passed
            return message

        async def timed_send(message: Any) -> None:
            times.passed = time.perf_counter()
            await send(message)

        await self._app(scope, timed_receive, timed_send)
