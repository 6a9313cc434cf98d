"""Send a turn to one connection, from an entry to the end, or until a newer connection replaces it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from omniwatch.resume.carrier import Carrier
from omniwatch.resume.protocol import Head
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.settings import Resume
from omniwatch.tap.asgi import Message, Send

BATCH_BYTES = 1 << 16
"""Bytes handed to the server at once; the last frame may exceed it."""
ECHOES_S = (0.02, 0.04, 0.06)
"""Seconds before each of the first heartbeats after speech: what they draw from the client tells TCP of a loss before its timeout."""
FAREWELL_S = 5.0
"""Timeout for the final frame to a replaced connection."""


class Sender:
    """Sends a stream to one client, from entry `index` on."""

    def __init__(
        self,
        store: Store,
        stream: ResumableTurn,
        index: int,
        send: Send,
        limits: Resume,
        carrier: Carrier | None = None,
    ) -> None:
        self.index = index
        self._carrier = carrier
        self._store = store
        self._stream = stream
        self._send = send
        self._limits = limits
        self._farewell = ""
        self._headed = False
        self._pump: asyncio.Task[None] | None = None

    def supersede(self) -> None:
        """End it: a newer one has come."""
        self._stop("superseded")

    def _stop(self, why: str) -> None:
        if self._pump and not self._pump.done():
            self._farewell = why
            self._pump.cancel()

    async def run(self, head: Head, left: Awaitable[None], begun: Callable[[], None] = lambda: None) -> None:
        """Send until the turn has ended, or the client has left or has read nothing for the grace period.

        `begun` is called once: when the first frames, or the head where there are none yet, have been handed to the network.
        """
        watch = asyncio.ensure_future(left)
        self._pump = asyncio.ensure_future(self._all(head, begun))
        self._store.attach(self._stream, self)
        try:
            await asyncio.wait({watch, self._pump}, return_when=asyncio.FIRST_COMPLETED)
            if self._farewell:
                self._store.detach(self._stream, self)
                await self._say(head, self._farewell)
            elif self._pump.done():
                self._pump.result()
        except OSError:
            # The server says so when the client has left in the middle of a message.
            pass
        finally:
            watch.cancel()
            self._pump.cancel()
            self._store.detach(self._stream, self)
            if self._carrier:
                self._carrier.leave()

    async def _all(self, head: Head, begun: Callable[[], None]) -> None:
        stream, turn = self._stream, self._stream.turn
        await self._message(_start(head))
        self._headed = True
        has_begun = self.index == turn.end
        if has_begun:
            # The head alone can wait in a server's buffers until there is a body.
            await self._body(turn.encoder.idle(turn.last_id))
            begun()
        echoes = iter(ECHOES_S)
        while True:
            while self.index < turn.end:
                echoes = iter(ECHOES_S)
                begin = self.index
                body, self.index = turn.batch(begin, BATCH_BYTES)
                turn.mark_sent(self.index)
                await self._body(body, speech=turn.speech_ends(begin, self.index) if self._carrier else ())
                stream.progressed()
                if not has_begun:
                    has_begun = True
                    begun()
                # Yield to the event loop, so that other connections proceed and disconnects are noticed.
                await asyncio.sleep(0)
            if turn.ended is not None:
                break
            await stream.change(next(echoes, self._limits.heartbeat_s))
            if self.index == turn.end and turn.ended is None:
                await self._body(turn.encoder.idle(turn.last_id))
        await self._body(b"", more=False)
        if self._carrier:
            self._carrier.finish()

    async def _body(self, body: bytes, *, more: bool = True, speech: Iterable[tuple[int, int]] = ()) -> None:
        await self._message({"type": "http.response.body", "body": body, "more_body": more}, speech)

    async def _message(self, message: Message, speech: Iterable[tuple[int, int]] = ()) -> None:
        if self._carrier:
            self._carrier.hand_over(message, speech)
        timer = asyncio.get_running_loop().call_later(self._limits.grace_s, self._stop, "slow")
        try:
            await self._send(message)
            if self._carrier:
                self._carrier.handed_over()
        finally:
            timer.cancel()

    async def _say(self, head: Head, why: str) -> None:
        turn = self._stream.turn
        word = turn.encoder.ended(why, turn.last_id, 0)
        # An answer that ends before its first byte still needs its head.
        messages: list[Message] = [] if self._headed else [_start(head)]
        messages.append({"type": "http.response.body", "body": word, "more_body": False})
        try:
            for message in messages:
                await asyncio.wait_for(self._send(message), FAREWELL_S)
        except asyncio.TimeoutError:
            pass


def _start(head: Head) -> Message:
    return {"type": "http.response.start", "status": head.status, "headers": head.headers}
