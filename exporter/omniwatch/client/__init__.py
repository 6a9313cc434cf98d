"""A client that a lost network does not silence: it comes back and hears the next frame. Standard library only.

client = Client("http://orin.local:8000", Player())
summary = await client.speak({"model": "…", "messages": […], "modalities": ["text", "audio"]})
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from omniwatch.client.dial import Dial
from omniwatch.client.ears import Ears, Resumption, Summary
from omniwatch.client.http import HttpError
from omniwatch.client.line import Connect, Line
from omniwatch.client.roles import Config
from omniwatch.client.turn import Turn

__all__ = ["Client", "Config", "Ears", "Resumption", "Summary"]


class Client:
    """One client of one server; one turn at a time.

    `name` stands for this client in the server's metrics. `headers` go with every request (an API key, say). `connect`
    makes connections, in place of TCP to the address of `url`. Raises ValueError for a URL that is none of these.
    """

    def __init__(
        self,
        url: str,
        ears: Ears,
        *,
        name: str | None = None,
        headers: dict[str, str] | None = None,
        config: Config | None = None,
        connect: Connect | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http://host:port or https://host:port, got {url!r}")
        try:
            parts.hostname.encode("idna")
        except UnicodeError:
            raise ValueError(f"no host can have the name in {url!r}") from None
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._dial = Dial(parts.hostname, parts.port or (443 if tls else 80), tls)
        self._ears = ears
        self._config = config or Config()
        self._jitter = jitter
        self._turn: Turn | None = None
        fields = {"X-Omni-Stream": name or f"client-{secrets.token_hex(6)}"} | (headers or {})
        host = parts.netloc.rpartition("@")[2]
        self._line = Line(connect or self._dial, host, parts.path.rstrip("/"), fields)

    async def speak(self, chat: dict[str, Any]) -> Summary:
        """Ask for one turn of speech (a chat request's body) and hear it to its end, whatever the network does.

        What the ears raise comes out here. When the call is cancelled, the server is told that nobody listens.
        """
        body = json.dumps({"stream": True} | chat).encode()
        turn = Turn(self._line, self._ears, self._config, body, self._jitter)
        self._turn = turn
        self._dial.forget()
        try:
            return await turn.hear()
        finally:
            self._turn = None
            if turn.unfinished:
                await self._hang_up(turn.session.stream)

    def picture(self, pts_ms: float) -> float | None:
        """Say that the picture of `pts_ms` is shown now: speech that is more than 40 ms off is forced back onto it.

        Returns how many milliseconds the voice leads after that, None while there is no voice.
        """
        if self._turn is None:
            return None
        self._turn.step(self._turn.session.picture, pts_ms)
        return self._turn.session.drift_ms

    async def _hang_up(self, stream: str) -> None:
        try:
            await asyncio.wait_for(self._line.ask("DELETE", f"/v1/resume/{stream}", b""), 1.0)
        except (OSError, HttpError, asyncio.TimeoutError):
            # The server lets go of the turn by itself after the grace.
            pass
