"""Handle one HTTP request on a connection, within a time limit."""

from __future__ import annotations

import io
import logging
import socket
import time
from typing import IO, Any, BinaryIO, cast
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from omniwatch.web import WsgiApp
from omniwatch.web.body import Body, length_of

log = logging.getLogger(__name__)

REQUEST_S = 10.0
"""How long a client may take for its request."""
RESPONSE_S = 30.0
"""How long the answer may take from then on, to the last byte sent."""
NAME = "omniwatch"
MAX_SKIPPED_BYTES = 4 * 2**20
"""How much of a request's body is thrown away where the page leaves it unread."""


class TimedSocket(io.RawIOBase):
    """A socket's bytes up to a deadline for all of them together, so that a client cannot drip them. TimeoutError."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds

    def _wait_at_most_what_is_left(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client was too slow")
        self._connection.settimeout(left)

    def readable(self) -> bool:
        """Yes."""
        return True

    def writable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive what there is; 0 at the end."""
        self._wait_at_most_what_is_left()
        return self._connection.recv_into(buffer)

    def write(self, data: Any) -> int:
        """Send a part of it; return how much."""
        self._wait_at_most_what_is_left()
        return self._connection.send(data)


class _Exchange(SimpleHandler):
    server_software = NAME

    def log_exception(self, exc_info: Any) -> None:
        slow_or_gone = isinstance(exc_info[1], OSError)
        log.log(logging.DEBUG if slow_or_gone else logging.ERROR, "answer not written", exc_info=exc_info)


class AppServer(WSGIServer):
    """A server with the application that its handlers call."""

    app: WsgiApp


class Handler(WSGIRequestHandler):
    """One connection, one request (HTTP/1.0: the connection ends with the answer)."""

    server: AppServer
    # Else a request too bad to tell its version gets its error without a status line, as HTTP/0.9 had it.
    default_request_version = "HTTP/1.0"

    def version_string(self) -> str:
        """Return the name in the header Server; no versions, which help only who looks for holes."""
        return NAME

    def setup(self) -> None:
        """Put the two deadlines around the connection."""
        self.connection = self.request
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self.rfile = io.BufferedReader(TimedSocket(self.connection, REQUEST_S))
        # Buffered, so that head and body leave in one piece and not in a packet each.
        self.wfile = io.BufferedWriter(TimedSocket(self.connection, REQUEST_S + RESPONSE_S), 65536)

    def finish(self) -> None:
        """Send what is left of the answer."""
        try:
            self.wfile.close()
        finally:
            self.rfile.close()

    def handle(self) -> None:
        """Read a request's head, have the application answer it."""
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.parse_request():
            return
        body = Body(cast("BinaryIO", self.rfile), length_of(self.headers.get("Content-Length")) or 0)
        wfile = cast("IO[bytes]", self.wfile)
        exchange = _Exchange(cast("IO[bytes]", body), wfile, self.get_stderr(), self.get_environ())
        # Empty, so that the process's environment is not copied into that of each request.
        exchange.os_environ = {}
        exchange.run(self.server.app)
        # Closing on unread bytes resets the connection, and the client may lose the answer.
        body.skip(MAX_SKIPPED_BYTES)

    def log_message(self, text: str, *values: Any) -> None:
        """Log requests for debugging only: a scrape a second would fill the log."""
        log.debug(text, *values)
