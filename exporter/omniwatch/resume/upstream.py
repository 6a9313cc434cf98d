"""Run one chat against the model server in a task of its own, which continues while the client is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from omniwatch.resume import protocol
from omniwatch.tap import stream_name
from omniwatch.tap.asgi import App, Message, Receive, Scope, Send
from omniwatch.tap.claim import CLAIM, Claim

CANCEL_S = 5.0
"""How long the model server may take to notice that its client has gone, before its task is cancelled."""


class Taker(Protocol):
    """Where a chat's answer goes, once it is known to be one that can be cut into frames."""

    async def take(self, body: bytes) -> None:
        """Take a piece of the answer's body; may wait."""


class Upstream:
    """One call of the application behind the middleware.

    `complete` says, once the request's body is there, whether the application may see its end. Until `admit`, given the answer's first
    message and the request's body, returns a Taker, everything passes between client and application as if nobody stood between. From then
    on the answer goes to the Taker, and the application does not see the client leave.
    """

    def __init__(
        self,
        app: App,
        receive: Receive,
        send: Send,
        complete: Callable[[], bool],
        admit: Callable[[Message, bytes], Taker | None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._app = app
        self._client_receive = receive
        self._client_send = send
        self._complete = complete
        self._admit = admit
        self._body: list[bytes] = []
        self._peeked = 0
        self._left: int | None = None
        """Bytes of the question that are still to come, where padding follows that is not waited for, nor passed on."""
        self._asked = loop.create_future()
        self._gone = loop.create_future()
        self._started = False
        self._taker: Taker | None = None
        self.claim = Claim()
        """What the tap says of the chat, if there is a tap behind."""
        self.admitted: asyncio.Future[None] = loop.create_future()
        """Done once there is a Taker."""
        self.refused: asyncio.Future[None] = loop.create_future()
        """Done where the application was not given the request."""
        self.task: asyncio.Task[None] | None = None

    def start(self, scope: Scope) -> asyncio.Task[None]:
        """Call the application."""
        # A compressed answer could not be read; nobody has asked for one before us.
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"accept-encoding"]
        self._left = protocol.unpadded(headers)
        if self._left is not None:
            length = (b"content-length", b"%d" % self._left)
            headers = [length if name.lower() == length[0] else (name, value) for name, value in headers]
        scope = {**scope, "headers": headers, CLAIM: self.claim}
        self.task = asyncio.ensure_future(self._app(scope, self._receive, self._send))
        return self.task

    async def left(self) -> None:
        """Wait until the client leaves. Before the answer is a Taker's, the application is told."""
        await self._asked
        while (await self._client_receive())["type"] != "http.disconnect":
            pass
        if self._taker is None:
            self.hang_up()

    def hang_up(self) -> None:
        """Let the application see its client gone."""
        if not self._gone.done():
            self._gone.set_result(None)

    def cancel(self) -> None:
        """Stop the application: politely, then by cancelling it."""
        self.hang_up()
        if self.task:
            asyncio.get_running_loop().call_later(CANCEL_S, self.task.cancel)

    async def _receive(self) -> Message:
        if self._asked.done():
            await asyncio.shield(self._gone)
            return {"type": "http.disconnect"}
        message = await self._client_receive()
        if message["type"] == "http.request" and self._left is not None:
            body = message.get("body", b"")[: self._left]
            self._left -= len(body)
            more = self._left > 0 and message.get("more_body", False)
            message = {**message, "body": body, "more_body": more}
        if message["type"] == "http.request" and self._peeked <= stream_name.MAX_BODY_BYTES:
            body = message.get("body", b"")
            self._body.append(body)
            self._peeked += len(body)
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._asked.set_result(None)
            if message["type"] == "http.request" and not self._complete():
                self.refused.set_result(None)
                await self._gone
                return {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            self.hang_up()
        return message

    async def _send(self, message: Message) -> None:
        if self._taker is None and not self._started:
            self._started = True
            self._taker = self._admit(message, b"".join(self._body))
            self._body.clear()
            if self._taker:
                self.admitted.set_result(None)
                if not self._asked.done():
                    self._asked.set_result(None)
                return
        if self._taker is None:
            await self._client_send(message)
        elif message["type"] == "http.response.body":
            await self._taker.take(message.get("body", b""))
