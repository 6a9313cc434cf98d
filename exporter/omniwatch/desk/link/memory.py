"""Connections in memory, for runs in virtual time."""

from __future__ import annotations

import asyncio

LIMIT = 1 << 16
"""Bytes that a direction holds before its writer has to wait."""


class _Way:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self.broken = False
        self._changed = asyncio.Event()

    def change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class End:
    """One end of a connection: reads what the other end writes."""

    def __init__(self, inward: _Way, outward: _Way) -> None:
        self._in = inward
        self._out = outward

    async def read(self, n: int) -> bytes:
        """Return what has come, at most `n` bytes, b"" at the end. Raises ConnectionResetError."""
        while not (self._in.data or self._in.ended or self._in.broken):
            await self._in.wait()
        if self._in.broken:
            raise ConnectionResetError("connection reset")
        data = bytes(self._in.data[:n])
        del self._in.data[:n]
        self._in.change()
        return data

    def write(self, data: bytes) -> None:
        """Send. What is sent on a connection that ended is dropped."""
        if not (self._out.ended or self._out.broken):
            self._out.data += data
            self._out.change()

    async def drain(self) -> None:
        """Wait until there is room. Raises ConnectionResetError."""
        while len(self._out.data) > LIMIT and not (self._out.ended or self._out.broken):
            await self._out.wait()
        if self._out.broken:
            raise ConnectionResetError("connection reset")

    def close(self) -> None:
        """Close both directions: the other end reads what was sent, then the end."""
        for way in (self._in, self._out):
            way.ended = True
            way.change()

    def reset(self) -> None:
        """Break both directions at once: what was under way is lost."""
        for way in (self._in, self._out):
            way.broken = True
            way.data.clear()
            way.change()


def duplex() -> tuple[End, End]:
    """Return both ends of a new connection."""
    there, back = _Way(), _Way()
    return End(back, there), End(there, back)
