"""Listen: one thread for each address, one for each connection, all bounded."""

from __future__ import annotations

import errno
import logging
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from prometheus_client import CollectorRegistry

from omniwatch.system.errors import UserError
from omniwatch.system.hostport import join_host_port
from omniwatch.system.log import LogThrottle
from omniwatch.web import WsgiApp
from omniwatch.web.auth import Guard
from omniwatch.web.config import Served, WatchedConfig, WebConfig
from omniwatch.web.handler import AppServer, Handler
from omniwatch.web.tls import names_allowed_san
from omniwatch.web.waiting_line import Places

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
"""How long a client may take for its TLS handshake."""
MAX_CONNECTIONS = 100
"""Connections served at once; the next is closed at once."""
MAX_PER_ADDRESS = 30
"""The same from one address: more than twenty open pages have."""
KEPT_SHARE = 10
"""One place in so many is kept for this machine itself: its Prometheus, its health checks."""
POLL_S = 0.25
ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})")
WILDCARDS = ("::", "0.0.0.0")


class ListenError(UserError):
    """An address that cannot be listened on."""


class _Listener(ThreadingMixIn, AppServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    # Newer Pythons turn it on: a second sidecar would share the port and take half of the scrapes.
    allow_reuse_port = False

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        app: WsgiApp,
        config: Callable[[], WebConfig],
        places: Places,
    ) -> None:
        self.address_family = family
        self.app = app
        self._config = config
        self._places = places
        self._seldom = LogThrottle(time.monotonic)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
        # Not HTTPServer's, which asks the name service who we are and may wait long for an answer.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The connection stays in the queue and would be tried again at once, for as long as this lasts.
                time.sleep(POLL_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.take(client_address[0]):
            self._report_refusal("too many connections at once")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError as error:
            self._places.give_back(client_address[0])
            self._report_refusal(str(error))
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            connection = self._secure(request)
            try:
                self.finish_request(connection, client_address)
                _say_goodbye(connection)
            finally:
                self.shutdown_request(connection)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            self._places.give_back(client_address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        slow_or_gone = isinstance(sys.exc_info()[1], OSError)
        log.log(logging.DEBUG if slow_or_gone else logging.ERROR, "connection failed", exc_info=True)

    def _secure(self, request: socket.socket) -> socket.socket:
        """Do the TLS handshake, if there is TLS, here in the connection's own thread."""
        config = self._config()
        if config.tls is None:
            return request
        request.settimeout(HANDSHAKE_S)
        connection = config.tls.wrap_socket(request, server_side=True)
        if config.allowed_sans and not names_allowed_san(connection.getpeercert(), config.allowed_sans):
            connection.close()
            raise ConnectionRefusedError("the client's certificate has none of client_allowed_sans")
        return connection

    def _report_refusal(self, why: str) -> None:
        if self._seldom(why):
            log.warning("connection refused", extra={"fields": {"error": why}})


def _say_goodbye(connection: socket.socket) -> None:
    """End TLS as it asks for, without waiting for the client to do so too."""
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(0)
        try:
            connection.unwrap()
        except (OSError, ValueError):
            pass


class WebServer:
    """Listeners at work, until `close`. `addresses` are what they are bound to, `urls` what to open."""

    def __init__(self, listeners: Sequence[_Listener], secure: bool) -> None:
        self._listeners = listeners
        self.addresses = [
            join_host_port(listener.server_name, listener.server_port) for listener in listeners
        ]
        scheme = "https" if secure else "http"
        hosts = [("localhost" if one.server_name in WILDCARDS else one.server_name) for one in listeners]
        self.urls = [
            f"{scheme}://{join_host_port(host, one.server_port)}/"
            for host, one in zip(hosts, listeners, strict=True)
        ]
        for listener, address in zip(listeners, self.addresses, strict=True):
            name = f"web {address}"
            threading.Thread(target=listener.serve_forever, args=(POLL_S,), name=name, daemon=True).start()

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; answers under way go on."""
        for listener in self._listeners:
            listener.shutdown()
            listener.server_close()


def serve(
    addresses: Sequence[str],
    app: WsgiApp,
    web_config: Path | WatchedConfig | None = None,
    *,
    named: str = "--web.listen-address",
    registry: CollectorRegistry | None = None,
    max_connections: int = MAX_CONNECTIONS,
) -> WebServer:
    """Serve the application at each address: `host:port`, `[IPv6]:port` or `:port`, with port 0 for any free one.

    `web_config` is a file as in config.py; it is watched, and `registry` is given its families. `named` is the flag or the
    setting that gave the addresses. Raises ListenError or WebConfigError, and then listens nowhere.
    """
    config: Callable[[], WebConfig] = WebConfig
    if web_config is not None:
        watched = WatchedConfig(web_config) if isinstance(web_config, Path) else web_config
        config = watched.current
        app = Guard(app, config, time.monotonic)
        if registry is not None:
            registry.register(Served(watched))
    places = Places(max_connections, MAX_PER_ADDRESS, max_connections // KEPT_SHARE)
    listeners: list[_Listener] = []
    try:
        for address in addresses:
            listeners.append(_listen(address, named, app, config, places))
    except ListenError:
        for listener in listeners:
            listener.server_close()
        raise
    return WebServer(listeners, config().tls is not None)


def _listen(
    address: str, named: str, app: WsgiApp, config: Callable[[], WebConfig], places: Places
) -> _Listener:
    parts = ADDRESS.fullmatch(address)
    if not parts or int(parts["port"]) > 65535:
        raise ListenError(f'{named}: expected host:port, such as 127.0.0.1:9842 or :9842, got "{address}"')
    try:
        host, port = parts["six"] or parts["host"] or "", int(parts["port"])
        if not host and socket.has_dualstack_ipv6():
            return _Listener(socket.AF_INET6, ("::", port), app, config, places)
        family, *_, where = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _Listener(family, (str(where[0]), port), app, config, places)
    except OSError as error:
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ListenError(f"{named} {address}: cannot listen: {why}") from error
    except UnicodeError as error:
        raise ListenError(f"{named} {address}: not the name of a host") from error
