"""`Resume`, the ASGI middleware: chats in frames, and the requests by which a client comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from omniwatch.log import Seldom
from omniwatch.resume import protocol
from omniwatch.resume.asking import Asking, Emit, answer
from omniwatch.resume.coders import Binary, Sse
from omniwatch.resume.making import Making
from omniwatch.resume.protocol import Form, Head, RefusedError
from omniwatch.resume.sending import Sending
from omniwatch.resume.store import Store, Stream
from omniwatch.resume.turn import Turn
from omniwatch.resume.upstream import Upstream
from omniwatch.settings import Settings, SettingsError, load
from omniwatch.tap import FLUSH_S
from omniwatch.tap.wire import App, Message, Receive, Scope, Send
from omniwatch.tap.writer import EventWriter

log = logging.getLogger(__name__)


class Resume:
    """Beside the tap or alone: `--middleware omniwatch.tap.Tap --middleware omniwatch.resume.Resume`, in this order.

    What can be resumed is in the memory of one process: a server of several API processes needs a balancer that keeps a
    client on its own.

    Chats that ask for no frames, and all other paths, pass untouched. The environment is read here, not on import:
    OMNIWATCH_CONFIG is the omniwatch.yaml to take settings from (the defaults where it does not hold or cannot be read, which is
    logged), OMNIWATCH_EVENTS the event file, as for the tap. `emit` takes the events `resume`, `rtx` and `realign` in place
    of that file; `clock` is the realtime clock of their `t`; `first_id` gives each turn its first frame id.
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
    ) -> None:
        self._app = app
        self._settings = settings or _configured(environ)
        self._writer = EventWriter.of(environ)
        self._emit = emit or self._writer.put
        self._clock = clock
        self._first_id = first_id
        self._asking_of: Asking | None = None
        self._seldom = Seldom(time.monotonic)
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
        elif not path.startswith(protocol.PATHS) or scope["method"] == "OPTIONS":
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
        asking, method = self._asking(), scope["method"]
        posts = {
            protocol.RESUME: asking.resume,
            protocol.RTX: asking.rtx,
            protocol.REALIGN: asking.realign,
        }
        stream_id = path.removeprefix(protocol.RESUME + "/")
        if path in posts:
            allowed = "POST"
            if method == "POST":
                await posts[path](scope, receive, send)
                return
        elif stream_id != path:
            allowed = "GET, DELETE"
            if method == "GET":
                await asking.event_source(stream_id, scope, receive, send)
                return
            if method == "DELETE":
                await asking.hang_up(stream_id, scope, send)
                return
        else:
            await self._app(scope, receive, send)
            return
        raise RefusedError(405, f"method not allowed; {allowed} is", headers=[(b"allow", allowed.encode())])

    def _asking(self) -> Asking:
        if self._asking_of is None:
            self._asking_of = Asking(self.store, self._settings, self._emit, self._clock)
        return self._asking_of

    async def _chat_or_resume(self, form: Form, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = protocol.header(scope["headers"], protocol.STREAM_HEADER)
        place = protocol.from_last_event_id(scope["headers"]) if stream_id else None
        if stream_id and place:
            now = asyncio.get_running_loop().time()
            await self._asking().go_on(now, place, stream_id, 200, scope, receive, send)
        else:
            await self._chat(form, scope, receive, send)

    async def _chat(self, form: Form, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.store.reserve():
            if form == "sse":
                # Such a client can do without; it may not even know that it has asked.
                await self._app(scope, receive, send)
                return
            raise RefusedError(
                503, "no more streams can be held for resumption", headers=[(b"retry-after", b"1")]
            )
        begun: list[tuple[Stream, Making, Sending, Head]] = []

        def admit(message: Message, body: bytes) -> Making | None:
            if not _is_event_stream(message):
                return None
            named = protocol.client_name(scope["headers"], body, scope.get("client"))
            name = upstream.claimed[0] if upstream.claimed else named
            begun.append(self._begin(form, name, message, send, upstream.cancel))
            return begun[0][1]

        def ended(task: asyncio.Task[None]) -> None:
            if begun:
                stream, making, _, _ = begun[0]
                making.finish(_how(task, stream))

        upstream = Upstream(self._app, receive, send, admit)
        task = upstream.start(scope)
        task.add_done_callback(ended)
        left = asyncio.ensure_future(upstream.left())
        try:
            await asyncio.wait({task, upstream.admitted}, return_when=asyncio.FIRST_COMPLETED)
            if begun:
                _, _, sending, head = begun[0]
                await sending.run(head, left)
            else:
                await task
        finally:
            left.cancel()
            if begun:
                stream, _, sending, _ = begun[0]
                self.store.detach(stream, sending)
            else:
                self.store.reserved -= 1
                task.cancel()

    def _begin(
        self, form: Form, name: str, message: Message, send: Send, cancel: Callable[[], None]
    ) -> tuple[Stream, Making, Sending, Head]:
        frames, limits = self._settings.frames, self._settings.resume
        coder = Binary(frames.frame_ms) if form == "binary" else Sse(frames.frame_ms)
        turn = Turn(coder, self._first_id(), frames.cache_win)
        stream = Stream(name, turn, cancel, limits)
        upstream = list(message.get("headers", []))
        stream.cross_origin = protocol.cross_origin(upstream)
        sending = Sending(self.store, stream, 0, send, limits)
        self.store.open(stream, sending)
        windows = {
            "x-omni-frame-ms": f"{frames.frame_ms:g}",
            "x-omni-cache-win": str(frames.cache_win),
            "x-omni-client-win": str(frames.client_win),
            "x-omni-grace-s": f"{limits.grace_s:g}",
            "x-omni-heartbeat-s": f"{limits.heartbeat_s:g}",
        }
        headers = protocol.opening(upstream, coder.media_type, stream.id, turn.first_id, windows)
        making = Making(self.store, stream, limits.turn_bytes, 2 * frames.cache_win, self._seldom)
        return stream, making, sending, Head(200, headers)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shutting() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.store.close()
            return message

        try:
            await self._app(scope, shutting, send)
        finally:
            self._writer.close(FLUSH_S)


def _configured(environ: Mapping[str, str]) -> Settings:
    """Read the settings that the environment names. A file that is not there, or does not hold, keeps no model server from
    starting: the defaults hold.
    """
    config = environ.get("OMNIWATCH_CONFIG")
    try:
        return load(Path(config) if config else None)
    except SettingsError as error:
        log.error("no settings to be had, the defaults hold", extra={"fields": {"error": str(error)}})
        return Settings()


def _is_event_stream(message: Message) -> bool:
    if message["type"] != "http.response.start" or message["status"] != 200:
        return False
    headers = list(message.get("headers", []))
    kind = protocol.header(headers, b"content-type") or ""
    return kind.lower().startswith("text/event-stream") and not protocol.header(headers, b"content-encoding")


def _how(task: asyncio.Task[None], stream: Stream) -> str:
    """Say how the model server's call ended, in the word that the client is given."""
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    if error:
        log.error(
            "the application failed in a turn", exc_info=error, extra={"fields": {"stream": stream.name}}
        )
        return "error"
    return "done" if stream.turn.coder.done else "cut"
