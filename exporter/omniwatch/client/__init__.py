"""Receive speech over a mobile network: a client that reconnects and continues with the next frame.

client = Client("https://orin.local:8000", Player())
summary = await client.speak({"model": "…", "messages": […], "modalities": ["text", "audio"]})

Needs the extra `client`: pip install 'omniwatch[client]'. With the extra `opus`, speech takes a tenth of the bytes.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

try:
    import aiohappyeyeballs as _aiohappyeyeballs  # noqa: F401  checked here, so that one message names the extra
    import h11 as _h11  # noqa: F401  the same
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"omniwatch.client needs the library {error.name}: pip install 'omniwatch[client]'", name=error.name
    ) from None

from omniwatch import frames
from omniwatch.client import opus
from omniwatch.client.callbacks import Resumption, Summary, TurnCallbacks
from omniwatch.client.config import Config
from omniwatch.client.connector import Connector
from omniwatch.client.endpoint import Connect, Endpoint
from omniwatch.client.http import HttpError
from omniwatch.client.turn import Turn
from omniwatch.client.warm import WarmConnection
from omniwatch.system import user_file

__all__ = ["Client", "Config", "Resumption", "Summary", "TurnCallbacks"]

HANG_UP_S = 1.0
"""Timeout of the request that stops a turn, seconds."""
TLS_HANDSHAKE_RTTS = 2
"""Round trips until a connection with TLS 1.3 is established."""


class Client:
    """Connect to one server, for one turn at a time.

    The client reports what it plays, and keeps a connection for the next turn for a while (`Config`); `close` ends both.

    `name` names this client in the server's metrics. `headers` go with every request (an API key, say).

    For https the server's certificate is verified against the system's authorities, or against those in `ca_file` alone
    (PEM). `tls` replaces the whole TLS configuration. `connect` replaces TCP to the address of `url`. Raises ValueError for a
    URL that is neither http nor https, and for a `ca_file` without certificates.
    """

    def __init__(
        self,
        url: str,
        callbacks: TurnCallbacks,
        *,
        name: str | None = None,
        headers: dict[str, str] | None = None,
        config: Config | None = None,
        ca_file: str | Path | None = None,
        tls: ssl.SSLContext | None = None,
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
        if parts.scheme == "https":
            tls = tls or _tls_context(ca_file)
        elif tls or ca_file:
            raise ValueError(f"certificates are verified for https only, got {url!r}")
        self._connector = Connector(parts.hostname, parts.port or (443 if tls else 80), tls)
        self._callbacks = callbacks
        self._config = config or Config()
        self._jitter = jitter
        self._turn: Turn | None = None
        fields = {"X-Omni-Stream": name or f"client-{secrets.token_hex(6)}", "Accept": _accept(self._config)}
        fields |= headers or {}
        host = parts.netloc.rpartition("@")[2]
        rtts = TLS_HANDSHAKE_RTTS if tls and not connect else 1
        self._endpoint = Endpoint(connect or self._connector, host, parts.path.rstrip("/"), fields, rtts)
        self._warm = WarmConnection(self._endpoint, self._config)
        self._tending: asyncio.Task[None] | None = None

    async def speak(self, chat: dict[str, Any]) -> Summary:
        """Request one turn of speech (`chat` is the body of a chat request) and receive it to its end, through outages.

        Raises what the callbacks raise. When the call is cancelled, the client tells the server to stop.
        """
        body = json.dumps({"stream": True} | chat).encode()
        warm = await self._warm.take()
        await self.close()
        turn = Turn(self._endpoint, self._callbacks, self._config, body, self._jitter, warm)
        self._turn = turn
        self._connector.forget()
        self._tending = asyncio.get_running_loop().create_task(self._tend(turn))
        try:
            return await turn.run()
        finally:
            self._turn = None
            if turn.unfinished:
                await self._hang_up(turn.session.stream)

    def picture(self, pts_ms: float) -> float | None:
        """Report that the picture of `pts_ms` is shown now: speech more than 40 ms off is realigned to it.

        Returns how many milliseconds the voice leads after that, None while no voice plays.
        """
        if self._turn is None:
            return None
        self._turn.step(self._turn.session.picture, pts_ms)
        return self._turn.session.drift_ms

    async def close(self) -> None:
        """Close the connection that is kept for the next turn, and report nothing more of the last one.

        A new turn does the same to the one before, and so does the end of the event loop.
        """
        if self._tending and not self._tending.done():
            self._tending.cancel()
            await asyncio.wait({self._tending})

    async def _tend(self, turn: Turn) -> None:
        try:
            await turn.reporting.wait()
            if self._config.report:
                await self._warm.follow(turn.session.report)
            await turn.over.wait()
            await self._warm.keep()
        finally:
            self._warm.close()

    async def _hang_up(self, stream: str) -> None:
        try:
            # Not in the URL, which servers and proxies log: who knows the id may hear the turn.
            request = self._endpoint.fetch("DELETE", "/v1/resume", b"", {"X-Omni-Resume": stream})
            await asyncio.wait_for(request, HANG_UP_S)
        except (OSError, HttpError, asyncio.TimeoutError):
            # The server discards the turn by itself after the grace.
            pass


def _accept(config: Config) -> str:
    if config.opus and opus.is_available():
        return f"{frames.MEDIA_TYPE};codec=opus;bitrate={config.opus_bitrate}"
    return frames.MEDIA_TYPE


def _tls_context(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        if ca_file is not None:
            user_file.read(Path(ca_file))
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file}: no certificates to be read: {error.strerror or error}") from None
