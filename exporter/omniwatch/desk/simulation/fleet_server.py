"""Serve a simulated fleet over HTTP: one address, a path for each device, thousands of kept connections."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable

from omniwatch.centre.discovery import document
from omniwatch.centre.inventory import Inventory, dump
from omniwatch.desk.link.serve import Address
from omniwatch.desk.simulation.fleet import Plan, exposition, inventory, members

MAX_HEAD = 16_384
DEVICES = "/devices/"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
SPARE_FILES = 200
"""Files beside the connections."""


class Pages:
    """What is answered to a path: a status, a content type and a body, or None where nobody answers."""

    def __init__(self, plan: Plan, address: str) -> None:
        fleet = members(plan)
        self._members = {f"{DEVICES}{one.name}/metrics": one for one in fleet}
        devices = inventory(fleet, address)
        self._fixed = {
            "/": (TEXT, b"/fleet.yaml\n/targets\n/devices/NAME/metrics\n"),
            "/fleet.yaml": ("application/yaml", dump(devices).encode()),
            "/targets": ("application/json", document(Inventory(devices)).encode()),
        }

    def answer(self, path: str, t: float) -> tuple[str, str, bytes] | None:
        """Answer for the time `t`."""
        member = self._members.get(path)
        if member is not None:
            return ("200 OK", TEXT, exposition(member, t).encode()) if member.answers(t) else None
        if path in self._fixed:
            return ("200 OK", *self._fixed[path])
        return "404 Not Found", TEXT, b"not found; / lists the pages\n"


class Connection(asyncio.Protocol):
    """A connection that stays open; requests are answered in their order. For loopback: no timeouts, no TLS."""

    def __init__(self, pages: Pages, now: Callable[[], float], answered: Callable[[bool], None]) -> None:
        self._pages = pages
        self._now = now
        self._answered = answered
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request whose head is whole; they have no bodies."""
        self._head += data
        while not self._transport.is_closing():
            head, end, rest = self._head.partition(b"\r\n\r\n")
            if not end:
                if len(self._head) > MAX_HEAD:
                    self._transport.close()
                return
            self._head = rest
            self._answer(head.decode("latin-1"))

    def _answer(self, head: str) -> None:
        words, *headers = head.split("\r\n")
        method, path, version, *_ = (*words.split(), "", "", "")
        answer = (
            self._pages.answer(path.partition("?")[0], self._now()) if method in ("GET", "HEAD") else None
        )
        if path.startswith(DEVICES):
            self._answered(answer is not None)
        if answer is None:
            # As if the device were cut off, but without making the caller wait for its timeout.
            self._transport.abort()
            return
        status, kind, body = answer
        ends = version != "HTTP/1.1" or any(line.lower() == "connection: close" for line in headers)
        lines = (
            f"HTTP/1.1 {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            *(["Connection: close"] if ends else []),
        )
        reply = "\r\n".join(lines).encode() + b"\r\n\r\n"
        self._transport.write(reply if method == "HEAD" else reply + body)
        if ends:
            self._transport.close()


async def serve(
    plan: Plan,
    listen: Address,
    now: Callable[[], float],
    ready: Callable[[str], None],
    answered: Callable[[bool], None],
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is given the address; `answered` is told of each scrape whether it was.

    Raises OSError where it cannot listen.
    """
    _allow_files(plan.devices + SPARE_FILES)
    loop = asyncio.get_running_loop()
    pages: list[Pages] = []
    listener = await loop.create_server(
        lambda: Connection(pages[0], now, answered), *listen, backlog=1024, start_serving=False
    )
    address = f"http://{Address(*listener.sockets[0].getsockname()[:2])}"
    pages.append(Pages(plan, address))
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await listener.start_serving()
    ready(address)
    try:
        await stopped.wait()
    finally:
        listener.close()


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
