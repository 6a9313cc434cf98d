"""Connections to one server: what to dial, what to say on every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from omniwatch import frames
from omniwatch.client.http import Answer, request


class Reader(Protocol):
    """The half of a connection that is read; b"" at its end."""

    async def read(self, n: int) -> bytes:
        """Return what has come, at most `n` bytes."""


class Writer(Protocol):
    """The half that is written."""

    def write(self, data: bytes) -> None:
        """Send."""

    async def drain(self) -> None:
        """Wait until there is room."""

    def close(self) -> None:
        """Close both halves."""


Connect = Callable[[], Awaitable[tuple[Reader, Writer]]]


class Line:
    """One server: how to connect to it, its name, the path before all paths, the headers of every request."""

    def __init__(self, dial: Connect, host: str, base: str, headers: dict[str, str]) -> None:
        self.dial = dial
        self._host = host
        self._base = base
        self._headers = {"Accept": frames.MEDIA_TYPE, "Content-Type": "application/json"} | headers

    def request(self, method: str, path: str, body: bytes) -> bytes:
        """Return a request's bytes."""
        return request(method, self._base + path, self._host, self._headers, body)

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Ask for something short on a connection of its own. Raises OSError, HttpError."""
        reader, writer = await self.dial()
        try:
            writer.write(self.request(method, path, body))
            await writer.drain()
            answer, said = Answer(), b""
            while not answer.done and (data := await reader.read(65_536)):
                said += answer.feed(data)
            return answer.status, said
        finally:
            writer.close()
