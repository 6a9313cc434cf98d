"""Real TCP connections with data on them, both ends in hand."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

WHOLE_TCP_INFO = 280
"""The size of struct tcp_info in Linux 6.18."""


def exchange(client: socket.socket, served: socket.socket) -> None:
    """Data both ways, acknowledged at once: an acknowledgement that waits for an answer is late by a busy test."""
    for sender, receiver in ((served, client), (client, served)):
        receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        sender.sendall(b"speech")
        receiver.recv(100)


def accept(server: socket.socket, address: str) -> tuple[socket.socket, socket.socket, str]:
    """A connection through which data went both ways: the client's end, the server's end, the peer's name."""
    client = socket.create_connection((address, server.getsockname()[1]), timeout=20)
    served, peer = server.accept()
    served.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(10):
        exchange(client, served)
    return client, served, f"{peer[0]}:{peer[1]}"


@contextlib.contextmanager
def connected(address: str, bound: str | None = None) -> Iterator[tuple[socket.socket, socket.socket, str]]:
    bound = bound or address
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as server:
        client, served, peer = accept(server, address)
        with client, served:
            yield client, served, peer


def kernel_rtt_ms(served: socket.socket) -> float:
    """The same figure by another way, of a connection one holds."""
    raw = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, WHOLE_TCP_INFO)
    return float(struct.unpack_from("=I", raw, 68)[0]) / 1000.0
