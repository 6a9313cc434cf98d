"""Keep one connection for the next question: reports go by it meanwhile, and small requests keep it open."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import suppress

from omniwatch.client.config import Config
from omniwatch.client.endpoint import Endpoint, Reader, Writer
from omniwatch.client.http import HttpError, Response
from omniwatch.client.turn_report import TurnReport

PING = "/health"
"""What is asked to keep a connection open; any answer will do."""
PING_S = 2.0
"""Seconds for its answer; without one the connection is replaced."""
REPORT = "/omniwatch/report"
REPORT_S = 5.0
"""The same for a report: the network may be gone for that long and the connection go on."""
LOOK_S = 1.0
"""Seconds between two looks at whether the client has another address, which sends nothing."""
SHORTEST_PING_S = 1.0
MAX_ANSWER = 65_536
"""Longest answer to a small request, bytes."""
_TIMEOUT = re.compile(r"(?:^|[,; ])timeout=([0-9]{1,6})(?:$|[,; ])", re.IGNORECASE)


class WarmConnection:
    """At most one connection, with at most one request on it. Its methods are called one after another."""

    def __init__(self, endpoint: Endpoint, config: Config) -> None:
        self._endpoint = endpoint
        self._config = config
        self._ping_s = config.warm_ping_s
        self._is_refused = False
        self._idle: tuple[Reader, Writer] | None = None
        self._watch: asyncio.Task[bytes] | None = None

    async def take(self) -> tuple[Reader, Writer] | None:
        """Give the connection away; None where there is none that is believed to reach the server."""
        idle, watch = self._idle, self._watch
        self._idle = self._watch = None
        if idle is None or watch is None:
            return None
        is_closed = watch.done()
        watch.cancel()
        await asyncio.wait({watch})
        if is_closed or not watch.cancelled() or _has_moved(idle[1]):
            idle[1].close()
            return None
        return idle

    async def follow(self, report: TurnReport) -> None:
        """Report on a turn for as long as it has something to report."""
        now = asyncio.get_running_loop().time
        while report.due_at is not None:
            await asyncio.sleep(max(0.0, report.due_at - now()))
            if report.due_at is not None:
                status = await self._ask("POST", REPORT, json.dumps(report.body(now())).encode(), REPORT_S)
                report.answered(now(), status)

    async def keep(self) -> None:
        """Keep a connection open for `warm_s`; not where the server closes it, or says that it will."""
        now = asyncio.get_running_loop().time
        until = now() + self._config.warm_s
        ping_at = now() + (self._ping_s if self._idle else 0.0)
        while now() < until:
            if self._is_closed():
                return
            if now() >= ping_at or self._is_lost():
                await self._ask("GET", PING, b"", PING_S)
                if self._is_refused:
                    return
                ping_at = now() + self._ping_s
            await asyncio.sleep(LOOK_S)

    def _is_closed(self) -> bool:
        """Whether the server has closed the connection. It would close the next one, too."""
        watch = self._watch
        return watch is not None and watch.done() and not watch.cancelled() and watch.exception() is None

    def _is_lost(self) -> bool:
        return (
            self._idle is None
            or (self._watch is not None and self._watch.done())
            or _has_moved(self._idle[1])
        )

    def close(self) -> None:
        """Close the connection."""
        if self._watch:
            self._watch.cancel()
        if self._idle:
            self._idle[1].close()
        self._idle = self._watch = None

    async def _ask(self, method: str, path: str, body: bytes, timeout_s: float) -> int:
        """Return the status of the answer, 0 where there was none. A new connection is opened where there is none."""
        with suppress(OSError, HttpError, asyncio.TimeoutError):
            return await asyncio.wait_for(self._exchange(method, path, body), timeout_s)
        return 0

    async def _exchange(self, method: str, path: str, body: bytes) -> int:
        reader, writer = await self.take() or await self._endpoint.connect()
        try:
            writer.write(self._endpoint.request(method, path, body, {"Connection": "keep-alive"}))
            await writer.drain()
            response, size = Response(), 0
            while not response.done:
                data = await reader.read(65_536)
                size += len(data)
                if not data or size > MAX_ANSWER:
                    raise HttpError("no answer")
                response.feed(data)
        except BaseException:
            writer.close()
            raise
        self._note(response)
        if response.is_last:
            writer.close()
        else:
            self._idle = reader, writer
            self._watch = asyncio.get_running_loop().create_task(reader.read(1))
            self._watch.add_done_callback(lambda watch: watch.cancelled() or watch.exception())
        return response.status

    def _note(self, response: Response) -> None:
        stated = _TIMEOUT.search(response.headers.get("keep-alive", ""))
        self._ping_s, self._is_refused = self._config.warm_ping_s, response.is_last
        if stated:
            self._ping_s = max(SHORTEST_PING_S, min(self._ping_s, int(stated[1]) / 3))


def _has_moved(writer: Writer) -> bool:
    """Whether the client would reach the server from another address than the connection's: nothing is sent for that."""
    info = getattr(writer, "get_extra_info", None)
    ours, peer = (info("sockname"), info("peername")) if info else (None, None)
    if not ours or not peer:
        return False
    family = socket.AF_INET6 if len(peer) == 4 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(peer)
            return bool(probe.getsockname()[0] != ours[0])
    except OSError:
        return True
