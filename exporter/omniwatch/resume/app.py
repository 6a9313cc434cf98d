"""`Resume`, the ASGI middleware: chats in frames, and the requests by which a client comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path

from omniwatch.resume import protocol
from omniwatch.resume.chat import Chat
from omniwatch.resume.endpoints import Emit, Endpoints, answer
from omniwatch.resume.neighbours import Lock
from omniwatch.resume.protocol import Form, RefusedError
from omniwatch.resume.response_reader import own_thread
from omniwatch.resume.store import Store
from omniwatch.settings import Settings, SettingsError, load
from omniwatch.system.log import LogThrottle
from omniwatch.tap import FLUSH_S
from omniwatch.tap.asgi import App, Message, Receive, Scope, Send
from omniwatch.tap.writer import EventWriter

log = logging.getLogger(__name__)
YOUNG_S = 600.0
"""After a start, clients may come back with ids of the process before."""


class Resume:
    """Beside the tap or alone: `--middleware omniwatch.tap.Tap --middleware omniwatch.resume.Resume`, in this order.

    What can be resumed is in the memory of one process: a server of several API processes needs a balancer that keeps a
    client on its own. The second process on an event file logs that at its start.

    Chats that ask for no frames, and all other paths, pass untouched. The environment is read here, not on import:
    OMNIWATCH_CONFIG is the omniwatch.yaml to take settings from (the defaults where it does not hold or cannot be read, which is
    logged), OMNIWATCH_EVENTS the event file, as for the tap. `emit` takes the events `resume`, `rtx` and `realign` in place
    of that file; `clock` is the realtime clock of their `t`; `first_id` gives each turn its first frame id; `thread` makes
    what a turn in Opus is encoded in.
    """

    def __init__(
        self,
        app: App,
        *,
        settings: Settings | None = None,
        emit: Emit | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        first_id: Callable[[], int] = lambda: 0,
        monotonic: Callable[[], float] = time.monotonic,
        thread: Callable[[], Executor] = own_thread,
    ) -> None:
        self._app = app
        self._settings = settings or _configured(environ)
        self._writer = EventWriter.of(environ)
        self._lock = Lock(self._writer.path)
        self._emit = emit or self._writer.put
        self._clock = clock
        self._monotonic, self._began = monotonic, monotonic()
        self._first_id = first_id
        self._thread = thread
        self._endpoints: Endpoints | None = None
        self._seldom = LogThrottle(time.monotonic)
        self.store = Store(self._settings.resume)
        """The turns that can be resumed."""
        self.refused: Counter[int] = Counter()
        """Refusals by status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path") or "") if scope["type"] == "http" else ""
        if path == protocol.CHAT:
            form = protocol.wanted(scope["headers"]) if scope["method"] == "POST" else None
            if form is None or (form == "sse" and not self._settings.resume.event_streams):
                await self._app(scope, receive, send)
                return
        elif path not in protocol.PATHS or scope["method"] == "OPTIONS":
            # What pages of other origins may do is the model server's to say.
            await self._app(scope, receive, send)
            return
        else:
            form = None
        try:
            if form:
                await self._chat_or_resume(form, scope, receive, send)
            else:
                await self._ask(path, scope, receive, send)
        except RefusedError as refusal:
            self.refused[refusal.status] += 1
            await answer(send, *protocol.refused(refusal))

    async def _ask(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._get_endpoints()
        endpoints: dict[tuple[str, str], App] = {
            (protocol.RESUME, "POST"): served.resume,
            (protocol.RESUME, "GET"): served.resume_by_headers,
            (protocol.RESUME, "DELETE"): served.hang_up,
            (protocol.RTX, "POST"): served.rtx,
            (protocol.REALIGN, "POST"): served.realign,
        }
        endpoint = endpoints.get((path, scope["method"]))
        if endpoint is None:
            allowed = ", ".join(method for other, method in endpoints if other == path)
            raise RefusedError(
                405, f"method not allowed; {allowed} is", headers=[(b"allow", allowed.encode())]
            )
        await endpoint(scope, receive, send)

    def _get_endpoints(self) -> Endpoints:
        """Return what answers a client that comes back. Its clock is that of the event loop, which runs by the first request."""
        if self._endpoints is None:
            self._endpoints = Endpoints(self.store, self._settings, self._emit, self._clock, self._is_young)
        return self._endpoints

    def _is_young(self) -> bool:
        return self._monotonic() - self._began < YOUNG_S

    async def _chat_or_resume(self, form: Form, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = protocol.header(scope["headers"], protocol.STREAM_HEADER)
        place = protocol.from_last_event_id(scope["headers"]) if stream_id else None
        if stream_id and place:
            now = asyncio.get_running_loop().time()
            await self._get_endpoints().go_on(now, place, stream_id, 200, scope, receive, send)
        else:
            chat = Chat(
                self.store, self._settings, form, self._first_id, self._seldom, self._thread, scope, send
            )
            await chat.serve(self._app, receive)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shutting() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                # Only now: a process that is forked off later would hold the lock of the one before it.
                self._lock.take()
            if message["type"] == "lifespan.shutdown":
                self.store.close()
            return message

        try:
            await self._app(scope, shutting, send)
        finally:
            self._lock.release()
            self._writer.close(FLUSH_S)


def _configured(environ: Mapping[str, str]) -> Settings:
    """Read the settings that the environment names. A missing or invalid file does not keep the model server from
    starting: the defaults apply.
    """
    config = environ.get("OMNIWATCH_CONFIG")
    try:
        return load(Path(config) if config else None)
    except SettingsError as error:
        log.error("settings not usable, so the defaults apply: %s", error)
        return Settings()
