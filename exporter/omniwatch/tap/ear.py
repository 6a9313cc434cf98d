"""The ear: what of the speech has reached the listener, as this machine's kernel knows it.

The event loop only counts the bytes that it hands on and marks where speech ends (`line`); it asks nothing and takes no lock.
A thread of its own (`ear_thread`) asks the kernel while speech is under way, and writes `arrived`.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from omniwatch.events import Event
from omniwatch.system.log import LogThrottle
from omniwatch.tap.arrival import Speech
from omniwatch.tap.asgi import Scope
from omniwatch.tap.ear_thread import EarThread, Heard, Lost, OpenSocket, open_netlink
from omniwatch.tap.inet_diag import Ends, ends
from omniwatch.tap.line import Line

logger = logging.getLogger("omniwatch.tap")
Mode = Literal["auto", "kernel", "sent"]
MODES: tuple[Mode, ...] = get_args(Mode)
FORWARDED = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"))
"""Headers of a request that came through a proxy, which acknowledges for the listener."""
HTTP_1 = ("1.0", "1.1")
"""Versions in which a connection carries one answer at a time."""
INTERFACES = Path("/proc/net/if_inet6")


class Ear:
    """The ear of one process. Its thread is made with the first turn, and anew in a process that was forked off.

    `put` takes events from any thread; `clock` returns seconds of real time, `monotonic` seconds that never step.
    """

    def __init__(
        self,
        mode: Mode,
        put: Callable[[Event], None],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        open_socket: OpenSocket = open_netlink,
    ) -> None:
        self.mode = mode
        self._new_thread = partial(EarThread, put, clock, monotonic, open_socket)
        self.listening = self._new_thread()
        self._pid = 0
        self._seldom = LogThrottle(time.monotonic)

    def line(self, scope: Scope) -> Line | None:
        """Return the connection of a scope; None where what the kernel would say of it is not what the listener has."""
        if self.mode == "sent" or time.monotonic() < self.listening.down_until_m:
            return None
        if scope.get("http_version", "1.1") not in HTTP_1:
            return None
        its_ends = _ends(scope.get("server"), scope.get("client"))
        if its_ends is None or (self.mode == "auto" and not self._believes(scope, its_ends)):
            return None
        return Line(its_ends, self, doubtful=self.mode == "auto")

    def _believes(self, scope: Scope, its_ends: Ends) -> bool:
        return not (
            its_ends.is_within_host
            or its_ends.peer in self.listening.near
            or any(name in FORWARDED for name, _ in scope.get("headers", ()))
        )

    def carried(self, speech: Speech) -> None:
        """Follow speech that was handed to a middleware outside the tap, also while no connection carries it."""
        if speech.is_held and not speech.is_followed and not speech.is_deaf and self._is_ready():
            speech.is_followed = True
            self.listening.inbox.put(speech)

    def heard(self, speech: Speech, ms: float, ago_s: float) -> None:
        """Take a client's word that it has a turn's speech up to `ms`, and how long it has heard nothing more."""
        if self._is_ready():
            self.listening.inbox.put(Heard(speech, ms, ago_s))

    def lose(self, speech: Speech) -> None:
        """Note that it is not known any longer what arrives of a turn."""
        if self._is_ready():
            self.listening.inbox.put(Lost(speech))

    def close(self, timeout_s: float) -> None:
        """End the thread; a later turn begins anew."""
        if self._pid == os.getpid():
            self._pid = 0
            self.listening.inbox.put(None)
            self.listening.thread.join(timeout_s)

    def attend(self, line: Line) -> bool:
        """Ask about a connection; False where there is no thread to ask."""
        if not self._is_ready():
            return False
        self.listening.inbox.put(line)
        return True

    def _is_ready(self) -> bool:
        if self._pid == os.getpid():
            return time.monotonic() >= self.listening.down_until_m
        listening = self._new_thread()
        try:
            listening.thread.start()
        except RuntimeError as error:
            if self._seldom("thread"):
                logger.warning("no thread to ask the kernel what arrives: %s; what is sent counts", error)
            return False
        self.listening, self._pid = listening, os.getpid()
        return True


def mode_of(environ: Mapping[str, str]) -> Mode:
    """Return the mode that the environment names: OMNIWATCH_EAR."""
    stated = environ.get("OMNIWATCH_EAR") or "auto"
    for mode in MODES:
        if stated == mode:
            return mode
    logger.warning("OMNIWATCH_EAR: expected auto, kernel or sent, got %r; using auto", stated)
    return "auto"


def _ends(server: object, client: object) -> Ends | None:
    """Name the ends that a server states; a unix socket has none, and a proxy's header gives a client without a port."""
    found = []
    for end in (server, client):
        if not isinstance(end, (tuple, list)) or len(end) < 2 or not isinstance(end[1], int):
            return None
        found.append((str(end[0]), end[1]))
    local, peer = found
    return ends((_with_zone(local[0]), local[1]), peer)


def _with_zone(host: str) -> str:
    """Return a link-local address of this machine with its interface, which the scope of a request does not name."""
    if not host.lower().startswith("fe80:") or "%" in host:
        return host
    try:
        packed = ipaddress.ip_address(host).packed.hex()
        table = INTERFACES.read_text(encoding="ascii")
    except (ValueError, OSError):
        return host
    indexes = {int(line.split()[1], 16) for line in table.splitlines() if line.startswith(packed)}
    return f"{host}%{indexes.pop()}" if len(indexes) == 1 else host
