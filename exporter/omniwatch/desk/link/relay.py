"""The relay: carry connections between clients and a server under the link's conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from omniwatch.desk.link.framed import Framed
from omniwatch.desk.link.path import Blackout, Gilbert, Link
from omniwatch.desk.link.tcp import Flow

WINDOW_BYTES = 1 << 18
"""What may be under way in one direction of a connection: what buffers and windows of both ends hold."""
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
        pump = _Pump(self._loop, self._began, flow)

        async def arrive() -> None:
            while piece := await pump.take():
                self.carried[name] += len(piece)
                sink.write(piece)
                await sink.drain()

        arriving = self._loop.create_task(arrive())
        try:
            while data := await source.read(65_536):
                data = framed.feed(data) if framed else data
                if data:
                    pump.send(data)
                while pump.held > WINDOW_BYTES and not arriving.done():
                    await pump.room()
            pump.end()
            await arriving
            sink.close()
        except ConnectionError:
            sink.reset()
        finally:
            arriving.cancel()
            pump.stop()


class _Pump:
    """Moves bytes through a flow on an event loop's clock, in which the network began at `began`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, began: float, flow: Flow) -> None:
        self._loop, self._began, self._flow = loop, began, flow
        self._data = bytearray()
        self._arrived = 0
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def held(self) -> int:
        """Bytes that were sent and not taken."""
        return len(self._data)

    def send(self, data: bytes) -> None:
        """Send."""
        now = self._loop.time() - self._began
        self._flow.advance(now)
        self._data += data
        self._flow.write(now, len(data))
        self._turn(now)

    def end(self) -> None:
        """Send the end: a packet as any other."""
        self.send(b"\0")
        self._ended = True

    async def take(self) -> bytes:
        """Return what has arrived, b"" at the end."""
        while True:
            ready = min(self._arrived, len(self._data) - self._ended)
            if ready:
                break
            if self._ended and self._arrived:
                return b""
            self._moved.clear()
            await self._moved.wait()
        piece = bytes(self._data[:ready])
        del self._data[:ready]
        self._arrived -= ready
        self._taken.set()
        return piece

    async def room(self) -> None:
        """Wait until more was taken."""
        self._taken.clear()
        await self._taken.wait()

    def stop(self) -> None:
        """Let nothing more happen."""
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self, now: float) -> None:
        """Let happen what happens until now, and come again for what is next."""
        self._flow.advance(now)
        while self._flow.arrived:
            self._arrived += self._flow.arrived.popleft()[1]
            self._moved.set()
        due = self._flow.due()
        self.stop()
        self._timer = None if due is None else self._loop.call_at(self._began + due, self._turn, due)
