"""Connections to one name: asked for once a turn, its addresses tried beside each other (RFC 8305)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from itertools import chain, zip_longest
from typing import Any

Address = tuple[int, int, int, Any]
"""Family, type, protocol and the socket's own address."""

NEXT_ADDRESS_S = 0.25
"""How long the first address of a name has to answer before the next is tried beside it."""


class Dial:
    """One server's name and port. Calling it connects; raises OSError.

    Who answers for the name may be out of reach when the network is lost, and each question left open holds one of the
    event loop's few threads: what was answered once holds until `forget`, and no two questions are open at once.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._asked: asyncio.Task[list[Address]] | None = None

    def forget(self) -> None:
        """A turn begins: ask for the name anew, unless a question is still open."""
        if self._asked is not None and self._asked.done():
            self._asked = None

    async def __call__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect."""
        if self._asked is None or (self._asked.done() and not _answered(self._asked)):
            self._asked = asyncio.get_running_loop().create_task(self._ask())
            self._asked.add_done_callback(_answered)
        # One connection given up is no reason for the others to ask again.
        sock = await _first(await asyncio.shield(self._asked))
        return await asyncio.open_connection(
            sock=sock, ssl=self._tls, server_hostname=self._host if self._tls else None
        )

    async def _ask(self) -> list[Address]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        families: dict[int, list[Address]] = {}
        for family, kind, protocol, _, address in found:
            families.setdefault(family, []).append((family, kind, protocol, address))
        turns = chain.from_iterable(zip_longest(*families.values()))
        return [address for address in turns if address is not None]


async def _first(addresses: list[Address]) -> socket.socket:
    """Connect to whichever address answers first, the later ones begun only when those before them are slow or fail."""
    ways: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    try:
        while winner is None:
            if len(ways) < len(addresses):
                ways.append(asyncio.ensure_future(_connected(addresses[len(ways)])))
            going = [way for way in ways if not way.done()]
            if going:
                timeout = NEXT_ADDRESS_S if len(ways) < len(addresses) else None
                await asyncio.wait(going, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            winner = next((way for way in ways if way.done() and _answered(way)), None)
            if winner is None and len(ways) == len(addresses) and all(way.done() for way in ways):
                raise next((way.exception() for way in ways), None) or OSError("the name has no address")
        return winner.result()
    finally:
        for way in ways:
            if way is not winner:
                way.cancel()
                way.add_done_callback(_close)


async def _connected(address: Address) -> socket.socket:
    family, kind, protocol, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _answered(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


def _close(way: asyncio.Task[socket.socket]) -> None:
    if _answered(way):
        way.result().close()
