"""An observer of the wire: relays TCP and notes when each piece passed. It knows nothing of the benchmark's code."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Passed:
    """A piece of one connection; `up` is from the client."""

    t: float
    up: bool
    data: bytes


@dataclass
class Observer:
    """A relay in front of one server."""

    target: str
    # Not shown: a test that fails would print megabytes.
    connections: list[list[Passed]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        to = urlsplit(self.target)
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((to.hostname, to.port))
            passed: list[Passed] = []
            self.connections.append(passed)
            for source, sink, up in ((client, server, True), (server, client, False)):
                for end in (source, sink):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink, up, passed), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, up: bool, passed: list[Passed]) -> None:
        try:
            while data := source.recv(65536):
                passed.append(Passed(time.monotonic(), up, data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def exchanges(self, path: str, said: bytes = b".") -> list[tuple[float, float]]:
        """Return, for each POST of `path`, when its last byte went up and when the answer's body held what `said` matches.

        By default that is the body's first byte.
        """
        found = []
        for passed in self.connections:
            asked_t, head, wanted = 0.0, b"", False
            for piece in passed:
                if piece.up:
                    if piece.data.startswith((b"POST ", b"GET ")):
                        wanted, head = piece.data.startswith(f"POST {path}".encode()), b""
                    asked_t = piece.t
                elif wanted:
                    head += piece.data
                    start, end, body = head.partition(b"\r\n\r\n")
                    if b"chunked" in start.lower():
                        # A chunk's length is a line of its own before its first byte.
                        body = body.partition(b"\r\n")[2]
                    if end and re.search(said, body, re.DOTALL):
                        found.append((asked_t, piece.t))
                        wanted = False
        return sorted(found)
