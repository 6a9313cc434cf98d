"""The tap: ASGI middleware that turns what a vLLM-Omni server says into the event contract.

    vllm serve MODEL --omni --middleware omniwatch.tap.Tap

It runs inside the model server and observes without modifying: messages pass unchanged, in order and at once. Its own
exceptions are logged, never raised. It needs msgspec and the standard library, which vLLM has.
"""

from __future__ import annotations

import logging
import os
import time
from asyncio import CancelledError
from collections.abc import Callable, Mapping

from omniwatch.system import needed
from omniwatch.system.log import LogThrottle

needed.check("omniwatch.tap", "msgspec")

from omniwatch.tap import chat, realtime, report, video  # noqa: E402 - the check comes first
from omniwatch.tap.asgi import App, Message, Receive, Scope, Send  # noqa: E402 - the check comes first
from omniwatch.tap.ear import Ear, mode_of  # noqa: E402 - the check comes first
from omniwatch.tap.observer import Observer, TapContext  # noqa: E402 - the check comes first
from omniwatch.tap.writer import EventWriter  # noqa: E402 - the check comes first

logger = logging.getLogger("omniwatch.tap")
WARMUP = b"vllm_omni_warmup=1"
"""Query parameter of the connection that a duplex server opens to itself at its start."""
FLUSH_S = 1.0
"""How long the server's shutdown may wait for the last events to be written."""

_watches: dict[tuple[str, str], Callable[[Scope, TapContext], Observer]] = {
    ("websocket", video.PATH): video.VideoObserver,
    ("http", chat.PATH): chat.ChatObserver,
    **{("websocket", path): realtime.RealtimeObserver for path in realtime.PATHS},
}


class Tap:
    """ASGI middleware. The environment is read here, not on import.

    OMNIWATCH_EVENTS is the event file, OMNIWATCH_EVENTS_MAX_BYTES the size past which it is rotated, OMNIWATCH_EAR whether the
    kernel is asked what arrives. `clock` returns seconds of real time, `monotonic` seconds that never step.
    """

    def __init__(
        self,
        app: App,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self._seldom = LogThrottle(time.monotonic)
        self._writer = EventWriter.of(environ)
        self._ear = Ear(mode_of(environ), self._writer.offer, clock=clock, monotonic=monotonic)
        self._context = TapContext(self._writer.put, clock, monotonic, self._ear)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection: observe it, answer it here (reports), or pass it on."""
        path = scope.get("path")
        if path is None:
            await self._lifespan(scope, receive, send)
            return
        if scope.get("root_path"):
            path = path.removeprefix(scope["root_path"])
        new_watch = _watches.get((scope["type"], path))
        if new_watch is not None and WARMUP not in scope.get("query_string", b""):
            await self._watched(new_watch, scope, receive, send)
        elif path == report.PATH and scope["type"] == "http" and scope["method"] == "POST":
            await self._context.reports.serve(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _watched(
        self, new_watch: Callable[[Scope, TapContext], Observer], scope: Scope, receive: Receive, send: Send
    ) -> None:
        watch = self._begin(new_watch, scope)
        if watch is None:
            await self.app(scope, receive, send)
            return

        reason, gone = "error", False

        async def watched_receive() -> Message:
            message = await receive()
            try:
                watch.received(message)
            except Exception:
                self._complain()
            return message

        line = watch.line

        async def watched_send(message: Message) -> None:
            nonlocal gone
            if line:
                line.hand_over(message)
            try:
                message = watch.sent(message)
            except Exception:
                self._complain()
            try:
                await send(message)
            except OSError:
                gone = True
                raise
            if line:
                line.handed_over()

        try:
            await self.app(scope, watched_receive, watched_send)
            reason = "closed"
        except CancelledError:
            reason = "cancelled"
            raise
        finally:
            try:
                watch.over("cancelled" if gone else reason)
            except Exception:
                self._complain()
            if line:
                line.is_left = True

    def _begin(self, new_watch: Callable[[Scope, TapContext], Observer], scope: Scope) -> Observer | None:
        try:
            return new_watch(scope, self._context)
        except Exception:
            self._complain()
            return None

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        finally:
            self._ear.close(FLUSH_S)
            self._writer.close(FLUSH_S)

    def _complain(self) -> None:
        if self._seldom("fault"):
            logger.exception("a message could not be understood; it passed unchanged")
