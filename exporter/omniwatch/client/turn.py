"""Run one turn on asyncio: the Session's handler, its timer, and one task per connection or short request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from omniwatch import frames
from omniwatch.client.callbacks import Resumption, Summary, TurnCallbacks
from omniwatch.client.config import Config
from omniwatch.client.endpoint import Endpoint, Reader, Writer
from omniwatch.client.http import HttpError, Response
from omniwatch.client.session import NO_WAY, REFUSED, Session

SHORT_S = 5.0
"""Timeout of a short request, seconds; it may outlive the turn."""
ECHO, ECHO_S = b"\n", 0.01
"""What follows the question so many seconds later: its acknowledgement tells TCP of a lost question before the timeout."""

ANSWERED = (200, 206)
"""Statuses of responses that carry frames."""


class Turn:
    """Run one turn. `unfinished` is set when the application stopped listening before the turn ended.

    `warm` is a connection that was kept for the question. `reporting` is set once there is something to report, and with
    `over` at the turn's end.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        callbacks: TurnCallbacks,
        config: Config,
        chat: bytes,
        jitter: Callable[[], float],
        warm: tuple[Reader, Writer] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._callbacks = callbacks
        self._chat = chat
        self._warm = warm
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._writers: dict[int, Writer] = {}
        self._short: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.summary = Summary()
        self.unfinished = False
        self.reporting, self.over = asyncio.Event(), asyncio.Event()
        self.session = Session(self, config, jitter, endpoint.handshake_rtts)
        self._error = ""
        self.format, self.audio = callbacks.format, callbacks.audio
        self.text, self.event = callbacks.text, callbacks.event

    async def run(self) -> Summary:
        """Receive the turn to its end."""
        try:
            if self._warm:
                self._adopt(0, *self._warm)
            self.step(self.session.start, self._warm is not None)
            self.summary.reason = await self._over
            if self.summary.reason == NO_WAY:
                self.summary.error = self._error
        finally:
            if self._timer:
                self._timer.cancel()
            self.unfinished = bool(self.session.stream) and not self.session.over
            self.session.abandon()
            for task in self._tasks.values():
                task.cancel()
            if self._warm:
                # A task that is cancelled before its first step closes nothing.
                self._warm[1].close()
            self.reporting.set()
            self.over.set()
        buffer = self.session.buffer
        self.summary.spoken, self.summary.lost = buffer.spoken, buffer.missed
        self.summary.duplicates, self.summary.corrupt = buffer.duplicates, buffer.corrupt
        return self.summary

    def step(self, move: Callable[..., Any], *args: Any) -> Any:
        """Pass an input to the session, and set the timer for its next `tick`."""
        try:
            result = move(self._loop.time(), *args)
        except Exception as error:
            # A callback of the application raised: the caller of `run` gets its exception.
            if self._over.done():
                raise
            self._over.set_exception(error)
            return None
        if self.session.report.due_at is not None:
            self.reporting.set()
        if self._timer:
            self._timer.cancel()
        due = self.session.wake_at()
        self._timer = None if due is None else self._loop.call_at(due, self.step, self.session.tick)
        return result

    def open(self, conn: int) -> None:
        """Connect."""
        self._run(conn, self._connection(conn))

    def _adopt(self, conn: int, reader: Reader, writer: Writer) -> None:
        self._writers[conn] = writer
        self._run(conn, self._listen(conn, reader, writer))

    def _run(self, conn: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[conn] = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(conn))

    def ask(self, conn: int, body: dict[str, Any] | None) -> None:
        """Send the chat request, or the request to resume."""
        writer = self._writers[conn]
        if body is not None:
            writer.write(self._endpoint.request("POST", "/v1/resume", json.dumps(body).encode()))
            return
        padded = {"X-Omni-Padding": str(len(ECHO))}
        said = self._endpoint.request("POST", "/v1/chat/completions", self._chat + ECHO, padded)
        writer.write(said.removesuffix(ECHO))
        self._loop.call_later(ECHO_S, self._echo, conn, writer)

    def _echo(self, conn: int, writer: Writer) -> None:
        if self._writers.get(conn) is writer:
            writer.write(ECHO)

    def drop(self, conn: int) -> None:
        """Close a connection."""
        if conn in self._tasks:
            self._tasks[conn].cancel()

    def rtx(self, from_id: int, count: int) -> None:
        """Request frames again."""
        self.summary.rtx += 1
        self._spawn(self._request_rtx(from_id, count))

    def lost(self, from_id: int, count: int) -> None:
        """Report frames that will not come."""
        self._callbacks.lost(from_id, count)

    def realign(self, shift_ms: float) -> None:
        """Realign the voice, and report it to the server."""
        self.summary.realigned += 1
        self._callbacks.realign(shift_ms)
        self._spawn(self._report("/v1/realign", {"shift_ms": shift_ms}))

    def resumed(self, result: str, outage_s: float, answer_s: float, late_s: float) -> None:
        """Report new data after an outage."""
        resumption = Resumption(result, outage_s, answer_s, late_s)
        self.summary.resumptions.append(resumption)
        self._callbacks.resumed(resumption)

    def ended(self, reason: str) -> None:
        """End the turn."""
        if not self._over.done():
            self._over.set_result(reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._short.add(task)
        task.add_done_callback(self._short.discard)

    async def _connection(self, conn: int) -> None:
        try:
            reader, writer = await self._endpoint.connect()
        except ssl.SSLCertVerificationError as error:
            self._error = f"certificate verify failed: {error.verify_message}"
            self.step(self.session.untrusted, conn)
            return
        except OSError as error:
            self._error = error.strerror or str(error)
            self.step(self.session.closed, conn)
            return
        self._writers[conn] = writer
        await self._listen(conn, reader, writer, self.session.opened)

    async def _listen(
        self, conn: int, reader: Reader, writer: Writer, opened: Callable[..., None] | None = None
    ) -> None:
        try:
            if opened:
                self.step(opened, conn)
            response, decoder, begun = Response(), frames.Decoder(), False
            while not response.done and (data := await reader.read(65_536)):
                body = response.feed(data)
                if response.status and not begun:
                    begun = True
                    if response.status not in ANSWERED:
                        self._error = f"the server answered with status {response.status}"
                    self.step(self.session.head, conn, response.status, response.headers)
                if begun:
                    self.step(self.session.data, conn, list(decoder.feed(body)))
        except (OSError, HttpError, frames.FrameError) as error:
            self._error = str(error)
        finally:
            del self._writers[conn]
            writer.close()
            self.step(self.session.closed, conn)

    async def _request_rtx(self, from_id: int, count: int) -> None:
        said = await self._short_request("/v1/rtx", {"from_id": from_id, "count": count})
        if said is None:
            # No answer: the session requests them again, or skips them.
            return
        status, body = said
        if status == 206:
            # An unreadable answer counts as lost; the session requests the frames again.
            with suppress(frames.FrameError):
                self.step(self.session.again, list(frames.Decoder().feed(body)))
        elif status in REFUSED:
            self.step(self.session.refused, from_id)

    async def _report(self, path: str, said: dict[str, Any]) -> None:
        # A report that does not arrive is only missing in a chart.
        await self._short_request(path, said)

    async def _short_request(self, path: str, said: dict[str, Any]) -> tuple[int, bytes] | None:
        body = json.dumps({"stream": self.session.stream} | said).encode()
        try:
            return await asyncio.wait_for(self._endpoint.fetch("POST", path, body), SHORT_S)
        except (OSError, HttpError, asyncio.TimeoutError):
            return None
