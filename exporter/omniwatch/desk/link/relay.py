"""The relay: carry connections between clients and a server under the link's conditions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from omniwatch.desk.link.framed import Framed
from omniwatch.desk.link.path import Blackout, Flow, Gilbert, Link

WINDOW_BYTES = 1 << 18
"""What may be under way in one direction of a connection: about what a receiver's window lets through."""
FORGET_S = 60.0
"""After this, the server's end of a connection that died silently is reset."""


class End(Protocol):
    """One end of a connection."""

    async def read(self, n: int) -> bytes:
        """Return what has come, at most `n` bytes, b"" at the end. Raises ConnectionError."""

    def write(self, data: bytes) -> None:
        """Send."""

    async def drain(self) -> None:
        """Wait until there is room. Raises ConnectionError."""

    def close(self) -> None:
        """Close, after what was written."""

    def reset(self) -> None:
        """Break off at once."""


class Socket:
    """A TCP connection as an End."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.read = reader.read
        self.write = writer.write
        self.drain = writer.drain
        self.close = writer.close
        self._writer = writer

    def reset(self) -> None:
        """Break off at once."""
        self._writer.transport.abort()


class Relay:
    """Carries connections over a link. `dial` connects to the server; `tell` is called with what happens to the network.

    Times are the event loop's, from the relay's making on.
    """

    def __init__(
        self,
        link: Link,
        dial: Callable[[], Awaitable[End]],
        tell: Callable[[Blackout, int], None] = lambda happening, dead: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._link = link
        self._dial = dial
        self._tell = tell
        self._alive: set[asyncio.Future[str]] = set()
        trouble = link.scenario.frames
        self._channel = Gilbert(trouble.drop, link.luck) if trouble else None
        self.connections = 0
        self.carried = {"up": 0, "down": 0}
        """Bytes that arrived, by direction."""

    def now(self) -> float:
        """Return seconds since the relay was made."""
        return self._loop.time() - self._began

    async def weather(self) -> None:
        """Let happen what happens to the network, for ever."""
        number = 0
        while happening := self._link.weather.happening(number):
            number += 1
            await asyncio.sleep(happening.at - self.now())
            dead = 0
            for fate in list(self._alive) if happening.cut else []:
                if not fate.done():
                    fate.set_result(happening.cut)
                    dead += 1
            self._tell(happening, dead)

    async def shake(self) -> None:
        """Wait as long as a handshake with the server takes."""
        await asyncio.sleep(self._link.handshake(self.now()) - self.now())

    async def carry(self, client: End) -> None:
        """Carry one connection to its end."""
        self.connections += 1
        fate: asyncio.Future[str] = self._loop.create_future()
        try:
            server = await self._dial()
        except OSError:
            client.reset()
            return
        flows = self._link.flow("up"), self._link.flow("down")
        trouble = self._link.scenario.frames
        framed = Framed(trouble, self._channel, self._link.luck) if trouble and self._channel else None
        ways = (
            self._loop.create_task(self._way(client, server, flows[0], "up", None)),
            self._loop.create_task(self._way(server, client, flows[1], "down", framed)),
        )

        def done(_: asyncio.Task[None]) -> None:
            if all(way.done() for way in ways) and not fate.done():
                fate.set_result("")

        for way in ways:
            way.add_done_callback(done)
        self._alive.add(fate)
        try:
            how = await fate
            for way in ways:
                way.cancel()
            if how == "silent":
                # Neither end hears of the other, or of its end, until the server's own patience is over.
                await asyncio.sleep(FORGET_S)
        finally:
            self._alive.discard(fate)
            for way in ways:
                way.cancel()
            for end in (client, server):
                if fate.done() and not fate.cancelled() and not fate.result():
                    end.close()
                else:
                    end.reset()

    async def _way(self, source: End, sink: End, flow: Flow, name: str, framed: Framed | None) -> None:
        under_way: deque[tuple[float, bytes]] = deque()
        moved = asyncio.Event()

        async def arrive() -> None:
            while True:
                while not under_way:
                    moved.clear()
                    await moved.wait()
                when, piece = under_way[0]
                if when > self.now():
                    await asyncio.sleep(when - self.now())
                under_way.popleft()
                moved.set()
                if not piece:
                    return
                self.carried[name] += len(piece)
                sink.write(piece)
                await sink.drain()

        arriving = self._loop.create_task(arrive())
        try:
            while data := await source.read(65_536):
                data = framed.feed(data) if framed else data
                at, start = self.now(), 0
                for when, size in flow.arrivals(at, len(data)) if data else ():
                    under_way.append((when, data[start : start + size]))
                    start += size
                moved.set()
                while sum(len(piece) for _, piece in under_way) > WINDOW_BYTES and not arriving.done():
                    moved.clear()
                    await moved.wait()
            last = flow.arrivals(self.now(), 0)[-1][0]
            under_way.append((last, b""))
            moved.set()
            await arriving
            sink.close()
        except ConnectionError:
            sink.reset()
        finally:
            arriving.cancel()
