"""Serve a chat in frames: the model server's answer is held, so that its client can come back to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from omniwatch.resume import protocol
from omniwatch.resume.carrier import Carrier
from omniwatch.resume.encoders import BinaryEncoder, Encoder, SseEncoder
from omniwatch.resume.protocol import Form, Head, RefusedError
from omniwatch.resume.response_reader import ResponseReader
from omniwatch.resume.sender import Sender
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.resume.turn import Turn
from omniwatch.resume.upstream import Upstream
from omniwatch.settings import Settings
from omniwatch.system.log import LogThrottle
from omniwatch.tap.asgi import App, Message, Receive, Scope, Send

log = logging.getLogger(__name__)


@dataclass
class HeldAnswer:
    """An answer that can be resumed: its stream, what reads it from the model server and what sends it to the client."""

    stream: ResumableTurn
    reader: ResponseReader
    sender: Sender
    head: Head


class Chat:
    """One chat. Its answer is held if the store has a place for it and the model server answers in events.

    The place is reserved once the request is whole: a body that never ends must take none.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        form: Form,
        first_id: Callable[[], int],
        seldom: LogThrottle,
        thread: Callable[[], Executor],
        scope: Scope,
        send: Send,
    ) -> None:
        self._store = store
        self._settings = settings
        self._form = form
        self._first_id = first_id
        self._seldom = seldom
        self._thread = thread
        self._scope = scope
        self._send = send
        self._address = protocol.address(scope.get("client"))
        self._reserved = False
        self._held: HeldAnswer | None = None

    async def serve(self, app: App, receive: Receive) -> None:
        """Ask the model server and send its answer, until that has ended or the client has left. Raises RefusedError."""

        def admit(message: Message, body: bytes) -> ResponseReader | None:
            return self._admit(upstream, message, body)

        upstream = Upstream(app, receive, self._send, self._reserve, admit)
        task = upstream.start(self._scope)
        task.add_done_callback(self._finish)
        left = asyncio.ensure_future(upstream.left())
        try:
            waited = {task, upstream.admitted, upstream.refused}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if upstream.refused.done():
                raise RefusedError(
                    503, "no more streams can be held for resumption", headers=[(b"retry-after", b"1")]
                )
            if self._held:
                await self._held.sender.run(self._held.head, left)
            else:
                await task
        finally:
            left.cancel()
            if self._held:
                self._store.detach(self._held.stream, self._held.sender)
            else:
                if self._reserved:
                    self._store.give_back(self._address)
                task.cancel()

    def _reserve(self) -> bool:
        """Reserve a place, the request being whole. Return whether it may go on: a client of events can do without."""
        self._reserved = self._store.reserve(self._address)
        return self._reserved or self._form == "sse"

    def _admit(self, upstream: Upstream, message: Message, body: bytes) -> ResponseReader | None:
        """Hold the answer that begins with `message`, if there is a place for it and it is one of events."""
        if not self._reserved or not _is_event_stream(message):
            return None
        self._reserved = False
        named = protocol.client_name(self._scope["headers"], body, self._scope.get("client"))
        self._held = self._hold(upstream, message, named)
        return self._held.reader

    def _finish(self, task: asyncio.Task[None]) -> None:
        if self._held:
            self._held.reader.finish(_how(task, self._held.stream))

    def _hold(self, upstream: Upstream, message: Message, named: str) -> HeldAnswer:
        store, scope = self._store, self._scope
        frames, limits = self._settings.frames, self._settings.resume
        encoder: Encoder = SseEncoder(frames.frame_ms)
        if self._form == "binary":
            bitrate = protocol.wanted_opus(scope["headers"]) if limits.opus else None
            encoder = BinaryEncoder(frames.frame_ms, bitrate)
        turn = Turn(encoder, self._first_id(), frames.cache_win)
        claim = upstream.claim
        claim.carry()
        stream = ResumableTurn(
            store.new_id(), claim.stream or named, turn, upstream.cancel, limits, self._address, claim
        )
        stream.authorization = protocol.authorization(scope["headers"])
        answered = list(message.get("headers", []))
        stream.cross_origin = protocol.cross_origin(answered)
        sender = Sender(store, stream, 0, self._send, limits, Carrier.of(claim, scope, frames.frame_ms))
        store.open(stream, sender)
        windows = {
            "x-omni-frame-ms": f"{frames.frame_ms:g}",
            "x-omni-cache-win": str(frames.cache_win),
            "x-omni-client-win": str(frames.client_win),
            "x-omni-grace-s": f"{limits.grace_s:g}",
            "x-omni-heartbeat-s": f"{limits.heartbeat_s:g}",
        }
        headers = protocol.opening(answered, encoder.media_type, stream.id, turn.first_id, windows)
        reader = ResponseReader(
            store, stream, limits.turn_bytes, 2 * frames.cache_win, self._seldom, self._thread
        )
        return HeldAnswer(stream, reader, sender, Head(200, headers))


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
