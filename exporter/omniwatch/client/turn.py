"""One turn under way: a session's Handler, and the tasks that do what it wants done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from omniwatch import frames
from omniwatch.client.ears import Ears, Resumption, Summary
from omniwatch.client.http import Answer, HttpError
from omniwatch.client.line import Line, Writer
from omniwatch.client.roles import Config
from omniwatch.client.session import REFUSED, Session

SHORT_S = 5.0
"""How long something short may take to ask; it may outlive the turn."""


class Turn:
    """One turn. `unfinished` once the application has stopped hearing it before it ended."""

    def __init__(
        self, line: Line, ears: Ears, config: Config, chat: bytes, jitter: Callable[[], float]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._ears = ears
        self._chat = chat
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._writers: dict[int, Writer] = {}
        self._short: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.summary = Summary()
        self.unfinished = False
        self.session = Session(self, config, jitter)
        self.format, self.audio = ears.format, ears.audio
        self.text, self.event = ears.text, ears.event

    async def hear(self) -> Summary:
        """Hear the turn to its end."""
        try:
            self.step(self.session.start)
            self.summary.reason = await self._over
        finally:
            if self._timer:
                self._timer.cancel()
            self.unfinished = bool(self.session.stream) and not self.session.over
            self.session.abandon()
            for task in self._tasks.values():
                task.cancel()
        hearing = self.session.hearing
        self.summary.spoken, self.summary.lost = hearing.spoken, hearing.missed
        self.summary.duplicates, self.summary.corrupt = hearing.duplicates, hearing.corrupt
        return self.summary

    def step(self, move: Callable[..., Any], *args: Any) -> Any:
        """Give the session an input, now; wake it again when it wants to be."""
        try:
            result = move(self._loop.time(), *args)
        except Exception as error:
            # Of the application's own ears: whoever waits for the turn is to know.
            if self._over.done():
                raise
            self._over.set_exception(error)
            return None
        if self._timer:
            self._timer.cancel()
        due = self.session.wake_at()
        self._timer = None if due is None else self._loop.call_at(due, self.step, self.session.tick)
        return result

    def open(self, conn: int) -> None:
        """Connect."""
        task = self._tasks[conn] = self._loop.create_task(self._connection(conn))
        task.add_done_callback(lambda _: self._tasks.pop(conn))

    def ask(self, conn: int, body: dict[str, Any] | None) -> None:
        """Begin the turn, or go on with it."""
        if body is None:
            said = self._line.request("POST", "/v1/chat/completions", self._chat)
        else:
            said = self._line.request("POST", "/v1/resume", json.dumps(body).encode())
        self._writers[conn].write(said)

    def drop(self, conn: int) -> None:
        """Close a connection."""
        if conn in self._tasks:
            self._tasks[conn].cancel()

    def rtx(self, from_id: int, count: int) -> None:
        """Ask for frames again."""
        self.summary.rtx += 1
        self._aside(self._ask_again(from_id, count))

    def lost(self, from_id: int, count: int) -> None:
        """Frames will not come."""
        self._ears.lost(from_id, count)

    def realign(self, shift_ms: float) -> None:
        """Force sound back onto the picture, and tell the server."""
        self.summary.realigned += 1
        self._ears.realign(shift_ms)
        self._aside(self._report("/v1/realign", {"shift_ms": shift_ms}))

    def resumed(self, result: str, outage_s: float, answer_s: float, late_s: float) -> None:
        """Something new is heard after an outage."""
        resumption = Resumption(result, outage_s, answer_s, late_s)
        self.summary.resumptions.append(resumption)
        self._ears.resumed(resumption)

    def ended(self, reason: str) -> None:
        """Nothing follows."""
        if not self._over.done():
            self._over.set_result(reason)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._short.add(task)
        task.add_done_callback(self._short.discard)

    async def _connection(self, conn: int) -> None:
        try:
            reader, writer = await self._line.dial()
        except OSError:
            self.step(self.session.closed, conn)
            return
        self._writers[conn] = writer
        try:
            self.step(self.session.opened, conn)
            answer, decoder, begun = Answer(), frames.Decoder(), False
            while not answer.done and (data := await reader.read(65_536)):
                said = answer.feed(data)
                if answer.status and not begun:
                    begun = True
                    self.step(self.session.head, conn, answer.status, answer.headers)
                if begun:
                    self.step(self.session.data, conn, list(decoder.feed(said)))
        except (OSError, HttpError, frames.FrameError):
            pass
        finally:
            del self._writers[conn]
            writer.close()
            self.step(self.session.closed, conn)

    async def _ask_again(self, from_id: int, count: int) -> None:
        said = await self._short_ask("/v1/rtx", {"from_id": from_id, "count": count})
        if said is None:
            # Asked again in a moment, or given up.
            return
        status, body = said
        if status == 206:
            # What is damaged beyond reading is as good as lost again.
            with suppress(frames.FrameError):
                self.step(self.session.again, list(frames.Decoder().feed(body)))
        elif status in REFUSED:
            self.step(self.session.refused, from_id)

    async def _report(self, path: str, said: dict[str, Any]) -> None:
        # One that does not arrive is only missing in a chart.
        await self._short_ask(path, said)

    async def _short_ask(self, path: str, said: dict[str, Any]) -> tuple[int, bytes] | None:
        body = json.dumps({"stream": self.session.stream} | said).encode()
        try:
            return await asyncio.wait_for(self._line.ask("POST", path, body), SHORT_S)
        except (OSError, HttpError, asyncio.TimeoutError):
            return None
