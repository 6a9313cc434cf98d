"""Apply the web configuration to each request: headers, a rate limit, basic authentication."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import bcrypt

from omniwatch.system.token_bucket import TokenBucket
from omniwatch.web import Start, WsgiApp, respond
from omniwatch.web.config import WebConfig
from omniwatch.web.response import Response

REMEMBERED = 100
"""Passwords that were right, so that a scrape a second does not cost a bcrypt a second."""
WAITING_CHECKS = 8
"""Requests that may wait for a bcrypt at once: those with wrong passwords must not take all there are."""
BCRYPT_BYTES = 72
"""bcrypt looks at no more of a password."""


class TooBusyError(Exception):
    """More passwords are being checked than can be."""


class BasicAuth:
    """Checks the Authorization header against users and their bcrypt hashes. Safe for several threads.

    One bcrypt runs at a time, on purpose: guessing gets one core. It also runs for users there are none of, so
    that the time an answer takes does not tell which there are. Passwords are remembered as keyed digests only.
    """

    def __init__(self, users: Iterable[tuple[bytes, bytes]]) -> None:
        self._users = dict(users)
        self._hashes = list(self._users.values())
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._places = threading.BoundedSemaphore(WAITING_CHECKS)

    def allows(self, header: str) -> bool:
        """Whether the header names a user and that user's password. Raises TooBusyError."""
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            credentials = base64.b64decode(encoded.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        digest = hmac.digest(self._key, credentials, "sha256")
        with self._lock:
            if digest in self._right:
                self._right.move_to_end(digest)
                return True
        if not self._places.acquire(blocking=False):
            raise TooBusyError
        try:
            right = self._check(credentials)
        finally:
            self._places.release()
        if right:
            with self._lock:
                self._right[digest] = None
                while len(self._right) > REMEMBERED:
                    self._right.popitem(last=False)
        return right

    def _check(self, credentials: bytes) -> bool:
        user, _, password = credentials.partition(b":")
        known = self._users.get(user)
        # An unknown user gets one of the real hashes, always the same: hashes may differ in their cost.
        stand_in = self._hashes[hmac.digest(self._key, user, "sha256")[0] % len(self._hashes)]
        with self._one_at_a_time:
            matches = bcrypt.checkpw(password[:BCRYPT_BYTES], known or stand_in)
        return matches and known is not None


class Guard:
    """A WSGI application around another one, which a request reaches only as the configuration of the moment allows."""

    def __init__(self, app: WsgiApp, current: Callable[[], WebConfig], clock: Callable[[], float]) -> None:
        self._app = app
        self._current = current
        self._clock = clock
        self._lock = threading.Lock()
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
            allowed = auth is None or auth.allows(environ.get("HTTP_AUTHORIZATION", ""))
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
        self._auth = BasicAuth(config.users) if config.users else None
        self._limit: TokenBucket | None = None
        if config.interval_s:
            self._limit = TokenBucket(1 / config.interval_s, config.burst, self._clock())
