"""Send requests to one server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from omniwatch.client.http import HttpError, Response, encode_request

MAX_SHORT_BODY = 1 << 24
"""Longest body of the response to a short request, bytes."""


class Reader(Protocol):
    """Read half of a connection; b"" at its end."""

    async def read(self, n: int) -> bytes:
        """Return the bytes that arrived, at most `n`."""


class Writer(Protocol):
    """Write half of a connection."""

    def write(self, data: bytes) -> None:
        """Send."""

    async def drain(self) -> None:
        """Wait until there is room."""

    def close(self) -> None:
        """Close both halves."""


Connect = Callable[[], Awaitable[tuple[Reader, Writer]]]


class Endpoint:
    """Know one server: how to connect, its host name, the prefix of all paths, the headers of every request.

    `handshake_rtts` is how many round trips a connection takes to establish: 1 for TCP, 2 with TLS 1.3.
    """

    def __init__(
        self, connect: Connect, host: str, base: str, headers: dict[str, str], handshake_rtts: int
    ) -> None:
        self.connect = connect
        self.handshake_rtts = handshake_rtts
        self._host = host
        self._base = base
        self._headers = {"Content-Type": "application/json"} | headers

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Encode a request; `headers` go with this one only."""
        return encode_request(method, self._base + path, self._host, self._headers | (headers or {}), body)

    async def fetch(
        self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a short request on a connection of its own; return status and body. Raises OSError, HttpError."""
        reader, writer = await self.connect()
        try:
            writer.write(self.request(method, path, body, headers))
            await writer.drain()
            response, received = Response(), b""
            while not response.done and (data := await reader.read(65_536)):
                received += response.feed(data)
                if len(received) > MAX_SHORT_BODY:
                    raise HttpError(f"a body of more than {MAX_SHORT_BODY} bytes")
            return response.status, received
        finally:
            writer.close()
