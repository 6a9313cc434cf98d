"""A listener on a real connection of loopback, spoken to as the tap speaks; and netlink sockets that misbehave."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from helpers.waiting import wait_until
from omniwatch.events import Arrived, Event
from omniwatch.tap.asgi import App
from omniwatch.tap.ear import Ear, Mode
from omniwatch.tap.ear_thread import open_netlink
from omniwatch.tap.line import Line
from omniwatch.tap.stream_events import StreamEvents

CHUNK_MS = 80.0
CHUNK = bytes(5000)


class Call:
    """One connection with a stream on it, and the ear. The client reads only what it is told to read."""

    def __init__(
        self,
        mode: Mode = "kernel",
        *,
        host: str = "127.0.0.1",
        buffer_bytes: int = 0,
        connect: Callable[[tuple[Any, ...]], Any] | None = None,
        open_socket: Callable[[], Any] = open_netlink,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.told: list[Event] = []
        self.ear = Ear(mode, self.told.append, open_socket=open_socket)
        address = socket.getaddrinfo(host, 0, family, socket.SOCK_STREAM)[0][4]
        with socket.create_server(address, family=family) as server:
            if connect:
                self.client = connect(server.getsockname())
            else:
                self.client = socket.socket(family)
                if buffer_bytes:
                    self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
                self.client.connect(server.getsockname())
            server.settimeout(20)
            self.served, _ = server.accept()
        self.served.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0
        self.line = self.new_line()
        self.stream_events = StreamEvents("a", self.told.append, time.time, time.monotonic)
        self.stream_events.line = self.line

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ear.close(5.0)
        self.client.close()
        self.served.close()

    def scope(self, **more: Any) -> dict[str, Any]:
        ends = {"server": self.served.getsockname()[:2], "client": self.served.getpeername()[:2]}
        return {"type": "http", "http_version": "1.1", "headers": [], **ends, **more}

    def new_line(self) -> Line | None:
        return self.ear.line(self.scope())

    def say(self, message: bytes = CHUNK, speech_ms: float = CHUNK_MS, turn: int = 1) -> None:
        """Hand a message to the network, with speech in it."""
        handed = {"type": "websocket.send", "bytes": message}
        if self.line:
            self.line.hand_over(handed)
        if speech_ms:
            self.stream_events.speak(turn, speech_ms)
        self.served.sendall(message)
        self.sent += len(message)
        if self.line:
            self.line.handed_over()

    def read(self) -> None:
        """The client reads all that was sent."""
        left = self.sent
        self.sent = 0
        while left:
            got = len(self.client.recv(left))
            assert got
            left -= got

    @property
    def arrived(self) -> list[Arrived]:
        return [event for event in self.told if isinstance(event, Arrived)]

    def until_arrived(self, ms: float) -> Arrived:
        wait_until(lambda: self.arrived and self.arrived[-1].ms >= ms, what=f"{ms} ms: {self.told}")
        return self.arrived[-1]


class Netlink:
    """The kernel's own socket, whose answers pass through `answers`."""

    def __init__(self, answers: Callable[[bytes], bytes]) -> None:
        self._real = open_netlink()
        self._answers = answers

    def setblocking(self, on: bool) -> None:
        self._real.setblocking(on)

    def send(self, question: bytes) -> int:
        return self._real.send(question)

    def recv(self, size: int) -> bytes:
        return self._answers(self._real.recv(size))

    def fileno(self) -> int:
        return self._real.fileno()

    def close(self) -> None:
        self._real.close()


class Hanging(Netlink):
    """Takes questions and never answers."""

    def __init__(self) -> None:
        super().__init__(bytes)

    def send(self, question: bytes) -> int:
        return len(question)


class Failing(Netlink):
    """Refuses every question."""

    def __init__(self) -> None:
        super().__init__(bytes)

    def send(self, question: bytes) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def forbidden() -> Any:
    """What a unit's RestrictAddressFamilies does."""
    raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))


def _refused(answer: bytes) -> bytes:
    (number,) = struct.unpack_from("=I", answer, 8)
    return struct.pack("=IHHIIi", 20, 2, 0, number, 0, -errno.EINVAL)


def _boasting(answer: bytes) -> bytes:
    """More was acknowledged than was ever sent."""
    lie = bytearray(answer)
    at = 16 + 72
    while at < len(lie):
        size, kind = struct.unpack_from("=HH", lie, at)
        if kind == 2:
            struct.pack_into("=Q", lie, at + 4 + 120, 10**12)
        at += (size + 3) & ~3
    return bytes(lie)


def _other_port(answer: bytes) -> bytes:
    return answer[:20] + b"\x00\x01" + answer[22:]


def _other_number(answer: bytes) -> bytes:
    return answer[:8] + b"\xff\xff\xff\xff" + answer[12:]


BROKEN: dict[str, Callable[[], Any]] = {
    "forbidden": forbidden,
    "hangs": Hanging,
    "fails": Failing,
    "refuses": lambda: Netlink(_refused),
    "truncates": lambda: Netlink(lambda answer: answer[:100]),
    "empty": lambda: Netlink(lambda _: b""),
    "lies": lambda: Netlink(_boasting),
    "about another connection": lambda: Netlink(_other_port),
    "to another question": lambda: Netlink(_other_number),
    "raises": lambda: 1 // 0,
}
"""What can be wrong with the socket that questions go through."""


@contextlib.contextmanager
def asked_through(open_socket: Callable[[], Any]) -> Iterator[Callable[[App], App]]:
    """Have taps that are made meanwhile ask through such sockets; yield middleware that names the ends of a real connection."""
    defaults = Ear.__init__.__kwdefaults__
    kept, defaults["open_socket"] = defaults["open_socket"], open_socket
    with Call() as call:
        its_ends = {name: call.scope()[name] for name in ("server", "client")}

        def within(app: App) -> App:
            async def named(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, **its_ends}, receive, send)

            return named

        try:
            yield within
        finally:
            defaults["open_socket"] = kept
