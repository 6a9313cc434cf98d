"""`Resume`, the ASGI middleware: chats in frames, and the requests by which a client comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from omniwatch.resume import protocol
from omniwatch.resume.carrier import Carrier
from omniwatch.resume.encoders import BinaryEncoder, SseEncoder
from omniwatch.resume.endpoints import Emit, Endpoints, answer
from omniwatch.resume.protocol import Form, Head, RefusedError
from omniwatch.resume.response_reader import ResponseReader
from omniwatch.resume.sender import Sender
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.resume.turn import Turn
from omniwatch.resume.upstream import Upstream
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._settings = settings or _configured(environ)
        self._writer = EventWriter.of(environ)
        self._emit = emit or self._writer.put
        self._clock = clock
        self._monotonic, self._began = monotonic, monotonic()
        self._first_id = first_id
        self._asking_of: Endpoints | None = None
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
        asking = self._asking()
        endpoints: dict[tuple[str, str], App] = {
            (protocol.RESUME, "POST"): asking.resume,
            (protocol.RESUME, "GET"): asking.resume_by_headers,
            (protocol.RESUME, "DELETE"): asking.hang_up,
            (protocol.RTX, "POST"): asking.rtx,
            (protocol.REALIGN, "POST"): asking.realign,
        }
        endpoint = endpoints.get((path, scope["method"]))
        if endpoint is None:
            allowed = ", ".join(method for other, method in endpoints if other == path)
            raise RefusedError(
                405, f"method not allowed; {allowed} is", headers=[(b"allow", allowed.encode())]
            )
        await endpoint(scope, receive, send)

    def _asking(self) -> Endpoints:
        if self._asking_of is None:
            self._asking_of = Endpoints(self.store, self._settings, self._emit, self._clock, self._is_young)
        return self._asking_of

    def _is_young(self) -> bool:
        return self._monotonic() - self._began < YOUNG_S

    async def _chat_or_resume(self, form: Form, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = protocol.header(scope["headers"], protocol.STREAM_HEADER)
        place = protocol.from_last_event_id(scope["headers"]) if stream_id else None
        if stream_id and place:
            now = asyncio.get_running_loop().time()
            await self._asking().go_on(now, place, stream_id, 200, scope, receive, send)
        else:
            await self._chat(form, scope, receive, send)

    async def _chat(self, form: Form, scope: Scope, receive: Receive, send: Send) -> None:
        begun: list[tuple[ResumableTurn, ResponseReader, Sender, Head]] = []
        address = protocol.address(scope.get("client"))
        reserved = False

        def complete() -> bool:
            # Not before: a body that never ends must hold no place.
            nonlocal reserved
            reserved = self.store.reserve(address)
            # A client of events can do without.
            return reserved or form == "sse"

        def admit(message: Message, body: bytes) -> ResponseReader | None:
            nonlocal reserved
            if not reserved or not _is_event_stream(message):
                return None
            reserved = False
            named = protocol.client_name(scope["headers"], body, scope.get("client"))
            begun.append(self._begin(form, named, scope, message, send, upstream))
            return begun[0][1]

        def ended(task: asyncio.Task[None]) -> None:
            if begun:
                stream, making, _, _ = begun[0]
                making.finish(_how(task, stream))

        upstream = Upstream(self._app, receive, send, complete, admit)
        task = upstream.start(scope)
        task.add_done_callback(ended)
        left = asyncio.ensure_future(upstream.left())
        try:
            waited = {task, upstream.admitted, upstream.refused}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if upstream.refused.done():
                raise RefusedError(
                    503, "no more streams can be held for resumption", headers=[(b"retry-after", b"1")]
                )
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
                if reserved:
                    self.store.give_back(address)
                task.cancel()

    def _begin(
        self, form: Form, named: str, scope: Scope, message: Message, send: Send, upstream: Upstream
    ) -> tuple[ResumableTurn, ResponseReader, Sender, Head]:
        frames, limits = self._settings.frames, self._settings.resume
        encoder = BinaryEncoder(frames.frame_ms) if form == "binary" else SseEncoder(frames.frame_ms)
        turn = Turn(encoder, self._first_id(), frames.cache_win)
        address = protocol.address(scope.get("client"))
        claim = upstream.claim
        claim.carry()
        stream = ResumableTurn(
            self.store.new_id(), claim.stream or named, turn, upstream.cancel, limits, address, claim
        )
        stream.authorization = protocol.authorization(scope["headers"])
        answered = list(message.get("headers", []))
        stream.cross_origin = protocol.cross_origin(answered)
        sending = Sender(self.store, stream, 0, send, limits, Carrier.of(claim, scope, frames.frame_ms))
        self.store.open(stream, sending)
        windows = {
            "x-omni-frame-ms": f"{frames.frame_ms:g}",
            "x-omni-cache-win": str(frames.cache_win),
            "x-omni-client-win": str(frames.client_win),
            "x-omni-grace-s": f"{limits.grace_s:g}",
            "x-omni-heartbeat-s": f"{limits.heartbeat_s:g}",
        }
        headers = protocol.opening(answered, encoder.media_type, stream.id, turn.first_id, windows)
        making = ResponseReader(self.store, stream, limits.turn_bytes, 2 * frames.cache_win, self._seldom)
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
    """Read the settings that the environment names. A missing or invalid file does not keep the model server from
    starting: the defaults apply.
    """
    config = environ.get("OMNIWATCH_CONFIG")
    try:
        return load(Path(config) if config else None)
    except SettingsError as error:
        log.error("settings not usable, so the defaults apply: %s", error)
        return Settings()


def _is_event_stream(message: Message) -> bool:
    if message["type"] != "http.response.start" or message["status"] != 200:
        return False
    headers = list(message.get("headers", []))
    kind = protocol.header(headers, b"content-type") or ""
    return kind.lower().startswith("text/event-stream") and not protocol.header(headers, b"content-encoding")


def _how(task: asyncio.Task[None], stream: ResumableTurn) -> str:
    """Say how the model server's call ended, in the word that the client is given."""
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    if error:
        log.error("the model server failed during a turn of stream %s", stream.name, exc_info=error)
        return "error"
    return "done" if stream.turn.encoder.done else "cut"
