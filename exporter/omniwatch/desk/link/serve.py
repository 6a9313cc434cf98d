"""Run the relay on real sockets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import NamedTuple

from omniwatch.desk.link.path import Blackout, Link
from omniwatch.desk.link.relay import Relay, Socket
from omniwatch.system.errors import UserError


class Address(NamedTuple):
    """A TCP address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Read "host:port" or "[v6]:port". Raises UserError."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"expected host:port, got {text!r}")
    return Address(host, int(port))


async def serve(
    listen: Address,
    server: Address,
    link: Link,
    ready: Callable[[Address], None],
    tell: Callable[[float, Blackout, int], None],
) -> Relay:
    """Relay connections until SIGINT or SIGTERM; return the relay, for what it has counted.

    `ready` is given the address it listens at; `tell` what happens to the network: when, what, and how many connections
    died of it. Raises OSError where it cannot listen.
    """
    loop = asyncio.get_running_loop()

    async def dial() -> Socket:
        return Socket(*await asyncio.open_connection(*server))

    relay = Relay(link, dial, lambda happening, dead: tell(relay.now(), happening, dead))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # On real sockets the kernel has shaken hands already: what a handshake takes, the first bytes have to wait.
        await relay.shake()
        await relay.carry(Socket(reader, writer))

    listener = await asyncio.start_server(carry, *listen)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    weather = loop.create_task(relay.weather())
    host, port = listener.sockets[0].getsockname()[:2]
    ready(Address(host, port))
    try:
        await stopped.wait()
    finally:
        weather.cancel()
        listener.close()
    return relay
