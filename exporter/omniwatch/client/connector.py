"""Connect to one server: resolve its name once per turn, try its addresses by Happy Eyeballs (RFC 8305), start TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import aiohappyeyeballs

NEXT_ADDRESS_S = 0.25
"""Seconds for the first address to answer before the next is tried beside it."""


class Connector:
    """Connect to one host and port; raises OSError.

    The name server may be unreachable while the network is lost, and each open query occupies one of the event loop's few
    threads. So an answer is reused until `forget`, and at most one query is open.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._query: asyncio.Task[list[aiohappyeyeballs.AddrInfoType]] | None = None

    def forget(self) -> None:
        """Resolve the name again for the next connection, unless a query is still open."""
        if self._query is not None and self._query.done():
            self._query = None

    async def __call__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        if self._query is None or (self._query.done() and not _succeeded(self._query)):
            self._query = asyncio.get_running_loop().create_task(self._resolve())
            self._query.add_done_callback(_succeeded)
        # A cancelled connection does not cancel the query that others wait for.
        addresses = await asyncio.shield(self._query)
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S)
        return await asyncio.open_connection(
            sock=sock, ssl=self._tls, server_hostname=self._host if self._tls else None
        )

    async def _resolve(self) -> list[aiohappyeyeballs.AddrInfoType]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        if not found:
            raise OSError(f"{self._host} has no address")
        return list(found)


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None
