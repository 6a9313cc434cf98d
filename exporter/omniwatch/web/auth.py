"""Apply the web configuration to each request: headers, a rate limit, basic authentication."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import bcrypt

from omniwatch.system.hostport import network_of
from omniwatch.system.token_bucket import TokenBucket
from omniwatch.web import Start, WsgiApp, respond
from omniwatch.web.config import WebConfig
from omniwatch.web.response import Response
from omniwatch.web.waiting_line import Places

REMEMBERED = 100
"""Passwords that were right, so that a scrape a second does not cost a bcrypt a second."""
WAITING_CHECKS = 16
"""Requests that may wait for a bcrypt at once: those with wrong passwords must not take all there are."""
WAITING_PER_ADDRESS = 8
"""The same from one address: the first requests of a page that a browser opens."""
KEPT_CHECKS = 4
"""Places of WAITING_CHECKS that are kept for this machine itself."""
BCRYPT_BYTES = 72
"""bcrypt looks at no more of a password."""


class TooBusyError(Exception):
    """More passwords are being checked than can be."""


class _Turns:
    """One password is checked at a time, by turns of the addresses: whoever sends many waits for himself."""

    def __init__(self) -> None:
        self._places = Places(WAITING_CHECKS, WAITING_PER_ADDRESS, KEPT_CHECKS)
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._queues: dict[str, tuple[threading.Lock, list[None]]] = {}

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Wait for the address's turn. Raises TooBusyError."""
        if not self._places.take(address):
            raise TooBusyError
        network = network_of(address)
        with self._lock:
            first, waiting = self._queues.setdefault(network, (threading.Lock(), []))
            waiting.append(None)
        try:
            with first, self._one_at_a_time:
                yield
        finally:
            with self._lock:
                waiting.pop()
                if not waiting:
                    del self._queues[network]
            self._places.give_back(address)


class BasicAuth:
    """Checks the Authorization header against users and their bcrypt hashes. Safe for several threads.

    Guessing gets one core: one bcrypt runs at a time, on purpose. It also runs for users there are none of, so
    that the time an answer takes does not tell which there are. Passwords are remembered as keyed digests only,
    each with the hash that it was right for: while its user keeps that hash, no bcrypt runs. A password that was
    right for a former hash has a place of its own, whatever else comes from its address.
    """

    def __init__(self, users: Iterable[tuple[bytes, bytes]]) -> None:
        self._users = dict(users)
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = _Turns()
        self._one_known_at_a_time = threading.Lock()

    def change(self, users: Iterable[tuple[bytes, bytes]]) -> None:
        """Go by these users from now on."""
        self._users = dict(users)

    def allows(self, header: str, address: str = "") -> bool:
        """Whether the header names a user and that user's password. Raises TooBusyError."""
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            credentials = base64.b64decode(encoded.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        digest = hmac.digest(self._key, credentials, "sha256")
        if self._remembered(digest, credentials):
            return True
        if digest in self._right:
            with self._one_known_at_a_time:
                if digest in self._right:
                    return self._remembered(digest, credentials) or self._check(digest, credentials)
        with self._turns.turn(address):
            # It may have been checked for another request meanwhile.
            return self._remembered(digest, credentials) or self._check(digest, credentials)

    def _remembered(self, digest: bytes, credentials: bytes) -> bool:
        with self._lock:
            known = self._users.get(credentials.partition(b":")[0])
            if known is None or self._right.get(digest) != known:
                return False
            self._right.move_to_end(digest)
            return True

    def _check(self, digest: bytes, credentials: bytes) -> bool:
        user, _, password = credentials.partition(b":")
        users = self._users
        hashes, known = [*users.values()], users.get(user)
        # An unknown user gets one of the real hashes, always the same: hashes may differ in their cost.
        stand_in = hashes[hmac.digest(self._key, user, "sha256")[0] % len(hashes)]
        matches = bcrypt.checkpw(password[:BCRYPT_BYTES], known or stand_in)
        with self._lock:
            if not matches or known is None:
                self._right.pop(digest, None)
                return False
            self._right[digest] = known
            self._right.move_to_end(digest)
            while len(self._right) > REMEMBERED:
                self._right.popitem(last=False)
        return True


class Guard:
    """A WSGI application around another one, which a request reaches only as the configuration of the moment allows."""

    def __init__(self, app: WsgiApp, current: Callable[[], WebConfig], clock: Callable[[], float]) -> None:
        self._app = app
        self._current = current
        self._clock = clock
        self._lock = threading.Lock()
        self._auth: BasicAuth | None = None
        self._take_up(current())

    def __call__(self, environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        """Answer one request."""
        with self._lock:
            config = self._current()
            if config is not self._config:
                self._take_up(config)
            auth, limit = self._auth, self._limit

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            own = {name.lower() for name, _ in config.headers}
            kept = [header for header in headers if header[0].lower() not in own]
            return start_response(status, [*kept, *config.headers], *rest)

        if limit and not self._allowed(limit):
            return respond(environ, start, Response("429 Too Many Requests", b"too many requests\n"))
        try:
            allowed = auth is None or auth.allows(
                environ.get("HTTP_AUTHORIZATION", ""), environ.get("REMOTE_ADDR", "")
            )
        except TooBusyError:
            busy = Response("503 Service Unavailable", b"too many logins at once\n")
            return respond(environ, start, busy)
        if not allowed:
            ask = [("WWW-Authenticate", 'Basic realm="omniwatch", charset="UTF-8"')]
            return respond(environ, start, Response("401 Unauthorized", b"unauthorized\n", headers=ask))
        return self._app(environ, start)

    def _allowed(self, limit: TokenBucket) -> bool:
        with self._lock:
            return limit.take(self._clock())

    def _take_up(self, config: WebConfig) -> None:
        self._config = config
        if self._auth and config.users:
            self._auth.change(config.users)
        else:
            self._auth = BasicAuth(config.users) if config.users else None
        self._limit: TokenBucket | None = None
        if config.interval_s:
            self._limit = TokenBucket(1 / config.interval_s, config.burst, self._clock())
