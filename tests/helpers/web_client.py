"""HTTP clients: a proper one, and one that sends what it likes."""

from __future__ import annotations

import http.client
import socket
import ssl

from helpers.web_calls import Reply

TIMEOUT_S = 20


def get(
    address: str,
    path: str = "/metrics",
    method: str = "GET",
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Reply:
    host, _, port = address.rpartition(":")
    where = (host.strip("[]"), int(port))
    connection = (
        http.client.HTTPSConnection(*where, timeout=TIMEOUT_S, context=tls)
        if tls
        else http.client.HTTPConnection(*where, timeout=TIMEOUT_S)
    )
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def read_to_end(client: socket.socket) -> bytes:
    got = b""
    try:
        while part := client.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    return got


def raw(address: str, request: bytes) -> bytes:
    """Send bytes, return all that comes back."""
    with connect(address) as client:
        client.sendall(request)
        return read_to_end(client)
