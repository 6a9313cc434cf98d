"""Send HTTP requests, each with one deadline from name resolution to the last byte of the answer, and bounds on its bytes.

No redirection is followed: a token or a message is for its address and no other.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedTooLongError
from contextlib import contextmanager
from email.message import Message
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from omniwatch.system.hostport import join_host_port
from omniwatch.system.terminal import one_line

MAX_HEAD_BYTES = 65_536
"""Longest head of an answer, bytes, with all answers of status 1xx before it."""
_PORTS = {"http": 80, "https": 443}


class HttpError(OSError):
    """An exchange that failed. The message leaves the address out, as it may hold a token; a server's words are escaped."""


class UnreachableError(HttpError):
    """No connection: the name, the address or TLS."""


class LateError(HttpError, TimeoutError):
    """The deadline passed before the answer was whole."""


class CutError(HttpError):
    """The connection ended before the answer was whole."""


class MalformedError(HttpError):
    """An invalid address, an answer that is not HTTP, or one beyond the bounds."""


class Deadline:
    """A time by which everything is over."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.extend(seconds)

    def extend(self, seconds: float) -> None:
        """Let it pass so many seconds from now."""
        self._seconds = seconds
        self._at = self._clock() + seconds

    def left_s(self) -> float:
        """Return the seconds that are left, more than 0. Raises LateError."""
        left_s = self._at - self._clock()
        if left_s <= 0:
            raise LateError(self.passed)
        return left_s

    @property
    def passed(self) -> str:
        """What is said once it has passed."""
        return f"no whole answer within {self._seconds:g} s"


class Answer:
    """A status, headers, and a body to read."""

    def __init__(self, response: http.client.HTTPResponse, link: _Link) -> None:
        self._response = response
        self._link = link
        self.status = response.status
        self.reason = response.reason
        self.headers: Message = response.headers

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def ends_connection(self) -> bool:
        """Whether the connection takes no further request."""
        return self._response.will_close

    def read(self, max_bytes: int, *, cut: bool = False) -> bytes:
        """Return the body. Raises HttpError; for one of more than `max_bytes` too, unless `cut`: then its first ones."""
        # Chunks have sizes around them, and http.client believes a negative one.
        self._link.allow(2 * max_bytes + MAX_HEAD_BYTES)
        with _explained(self._link.deadline):
            body = self._response.read(max_bytes + 1)
        if len(body) > max_bytes:
            if not cut:
                raise MalformedError(f"an answer of more than {max_bytes} bytes")
            return body[:max_bytes]
        if self._response.length:
            raise CutError("the connection ended in the middle of the answer")
        return body

    def read_some(self, max_bytes: int) -> bytes:
        """Return what there is of the body, b"" at its end. Raises HttpError."""
        self._link.allow(2 * max_bytes + MAX_HEAD_BYTES)
        with _explained(self._link.deadline):
            return self._response.read1(max_bytes)


class Connection:
    """A connection to the server of a URL, for requests one after another. Raises MalformedError for an invalid URL.

    `deadline` bounds all that happens on it; it may be extended. `proxy` is the URL of an HTTP proxy to go through.
    """

    def __init__(
        self, url: str, deadline: Deadline, context: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        self._parts = _split(url)
        self._proxy = _split(proxy, credentials=True) if proxy else None
        self._context = context
        self._link: _Link | None = None
        self._client: http.client.HTTPConnection | None = None
        self.deadline = deadline

    def connect(self) -> None:
        """Connect, with TLS where the scheme says so. Raises UnreachableError."""
        self.close()
        host = self._parts.hostname or ""
        port = self._parts.port or _PORTS[self._parts.scheme]
        with _explained(self.deadline, UnreachableError):
            sock = self._open_socket(host, port)
            try:
                if self._parts.scheme == "https":
                    context = self._context or ssl.create_default_context()
                    sock.settimeout(self.deadline.left_s())
                    sock = context.wrap_socket(sock, server_hostname=host)
            except BaseException:
                sock.close()
                raise
        self._link = _Link(sock, self.deadline)
        client = http.client.HTTPConnection(host, port)
        client.default_port = _PORTS[self._parts.scheme]
        client.auto_open = 0
        # The link has of a socket what http.client uses.
        client.sock = self._link
        self._client = client

    def _open_socket(self, host: str, port: int) -> socket.socket:
        if self._proxy is None:
            return open_socket(host, port, self.deadline)
        sock = open_socket(self._proxy.hostname or "", self._proxy.port or 80, self.deadline)
        try:
            _open_tunnel(_Link(sock, self.deadline), join_host_port(host, port), self._proxy)
        except BaseException:
            sock.close()
            raise
        return sock

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request, on a new connection if there is none. Return the answer once its head is there. Raises HttpError."""
        if self._link is None:
            self.connect()
        link, client = self._link, self._client
        assert link is not None
        assert client is not None
        link.allow(MAX_HEAD_BYTES)
        with _explained(self.deadline):
            client.request(method, target, body, dict(headers or {}))
            return Answer(client.getresponse(), link)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._link is not None:
            self._link.hang_up()
            self._link = None


@contextmanager
def ask(
    url: str,
    *,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> Iterator[Answer]:
    """Send a GET, or a POST of `body`; the answer's head is there when the context begins. Raises HttpError.

    The request goes through the proxy that the environment names, if any, by CONNECT.
    """
    connection = Connection(url, Deadline(timeout_s), context, _proxy_of(url))
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        yield connection.request(
            "GET" if body is None else "POST", target, body, {"Connection": "close", **(headers or {})}
        )
    finally:
        connection.close()


class _Link(io.RawIOBase):
    """A socket as http.client uses it. Closed by `hang_up` alone: http.client closes it while its answer is still read."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._room = 0
        self.deadline = deadline

    def allow(self, more_bytes: int) -> None:
        """Let so many bytes be received from now on."""
        self._room = more_bytes

    def makefile(self, *_: Any) -> io.BufferedReader:
        """Return what is received, as a file."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive what there is; 0 at the end."""
        if self._room <= 0:
            raise MalformedError("an answer beyond the bound on its bytes")
        self._sock.settimeout(self.deadline.left_s())
        size = self._sock.recv_into(buffer)
        self._room -= size
        return size

    def sendall(self, data: Any) -> None:
        """Send all of it."""
        # TLS has a timeout for each record.
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                self._sock.settimeout(self.deadline.left_s())
                sent += self._sock.send(view[sent:])

    def close(self) -> None:
        """Go on: see `hang_up`."""

    def hang_up(self) -> None:
        """Close the socket."""
        self._sock.close()


def _open_tunnel(link: _Link, authority: str, proxy: SplitResult) -> None:
    """Have a proxy connect to HOST:PORT (RFC 9110, section 9.3.6)."""
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.username is not None:
        word = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(word.encode()).decode()}")
    link.allow(MAX_HEAD_BYTES)
    link.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii"))
    # The answer to CONNECT has no body, and the server waits for the client: nothing behind it is read here.
    response = http.client.HTTPResponse(link, method="CONNECT")  # type: ignore[arg-type]
    response.begin()
    if response.status != 200:
        raise HttpError(f"the proxy {proxy.hostname} answers {response.status} {one_line(response.reason)}")


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for a URL (https_proxy, http_proxy, no_proxy), if any."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass

    parts = _split(url)
    found = getproxies_environment().get(parts.scheme)
    return None if not found or proxy_bypass(parts.netloc) else found


def _split(url: str, *, credentials: bool = False) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise MalformedError(str(error)) from error
    if not valid or (parts.username is not None and not credentials):
        raise MalformedError("expected http://HOST:PORT or https://HOST:PORT")
    return parts


def open_socket(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first address that answers; each has an equal share of what is left. Raises OSError."""
    addresses = _resolve(host, port, deadline)
    failed: OSError | None = None
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left_s() / (len(addresses) - number))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed or OSError("the name has no address")


_Addresses = list[tuple[Any, ...]]
_lock = threading.Lock()
_queries: dict[tuple[str, int], Future[_Addresses]] = {}
"""The name resolutions under way. One that hangs is waited for again, so that calls pile up no threads."""


def _resolve(host: str, port: int, deadline: Deadline) -> _Addresses:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    with _lock:
        query = _queries.get((host, port))
        if query is None:
            query = _queries[host, port] = Future()
            threading.Thread(target=_look_up, args=(host, port, query), name="resolver", daemon=True).start()
    try:
        return query.result(deadline.left_s())
    except WaitedTooLongError as error:
        raise LateError(f"the name {host} was not resolved in time") from error


def _look_up(host: str, port: int, query: Future[_Addresses]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except Exception as error:
        query.set_exception(error)
    else:
        query.set_result(found)
    finally:
        with _lock:
            _queries.pop((host, port), None)


@contextmanager
def _explained(deadline: Deadline, kind: type[HttpError] | None = None) -> Iterator[None]:
    """Turn what sockets and http.client raise into HttpError, of this kind if given."""
    try:
        yield
    except HttpError as error:
        if kind is None:
            raise
        raise kind(*error.args) from error
    except TimeoutError as error:
        raise (kind or LateError)(deadline.passed) from error
    except (OSError, http.client.IncompleteRead) as error:
        raise (kind or CutError)(explain(error)) from error
    except (http.client.HTTPException, ValueError) as error:
        said = one_line(str(error))[:100]
        raise (kind or MalformedError)(f"not an answer in HTTP: {said or type(error).__name__}") from error


def explain(error: Exception) -> str:
    """Return what happened to a connection, in a line."""
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended in the middle of the answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, (ssl.SSLError, socket.gaierror)):
        return str(error.args[-1])
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(text or type(error).__name__)
