"""HTTP servers that never come to an end, each in its own way, on a free port."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

OK = b"HTTP/1.1 200 OK\r\n"
Speech = Callable[[], Iterable[bytes]]


def dripping(data: bytes) -> Speech:
    """A byte a second, for ever."""
    return lambda: (bytes([one]) for one in itertools.chain(data, itertools.repeat(ord("x"))))


ENDLESS: dict[str, tuple[Speech, float]] = {
    "drips its head": (dripping(OK + b"X: "), 1.0),
    "drips its body": (dripping(b""), 1.0),
    "never answers": (lambda: [], 0.0),
    "sends headers": (lambda: itertools.chain([OK], (b"X-%d: y\r\n" % n for n in itertools.count())), 0.0),
    "sends a header without end": (
        lambda: itertools.chain([OK + b"X: "], itertools.repeat(b"y" * 4096)),
        0.0,
    ),
    "sends a body": (lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(b"z" * 4096)), 0.0),
    "sends a chunk of -1 bytes": (
        lambda: itertools.chain(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n"], itertools.repeat(b"z" * 4096)
        ),
        0.0,
    ),
    "sends trailers": (
        lambda: itertools.chain(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], itertools.repeat(b"X: y\r\n" * 512)
        ),
        0.0,
    ),
    "sends 100 Continue": (lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), 0.0),
    "drips 100 Continue": (lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), 0.2),
}
"""What each says, and the pause in seconds after each piece."""
HEADS = {"drips its body": OK + b"Content-Length: 1000000\r\n\r\n"}
"""What is sent at once before that."""


@contextmanager
def hostile(
    speech: Speech, pause_s: float = 0.0, head: bytes | Callable[[bytes], bytes] = b""
) -> Iterator[str]:
    """Serve so on every connection; gives the address. `head` is sent at once, or what it makes of the request."""
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def speak(connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(60)
                request = connection.recv(65536)
                connection.sendall(head(request) if callable(head) else head)
                for piece in speech():
                    connection.sendall(piece)
                    if over.wait(pause_s) or over.is_set():
                        return
                over.wait()
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=speak, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        # Closing alone would leave the thread in accept().
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()


@contextmanager
def unresolvable(monkeypatch: object) -> Iterator[list[str]]:
    """Let every name hang in its resolution; gives the names that were looked up."""
    asked: list[str] = []
    over = threading.Event()
    look_up = socket.getaddrinfo

    def hang(host: str, *args: object, flags: int = 0, **more: object) -> object:
        if flags & socket.AI_NUMERICHOST:
            return look_up(host, *args, flags=flags, **more)
        asked.append(host)
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "given up")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        yield asked
    finally:
        over.set()
