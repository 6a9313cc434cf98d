"""Observe one connection: an observer is given every message and emits events."""

from __future__ import annotations

import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol
from urllib.parse import parse_qs

from omniwatch.events import Event
from omniwatch.tap.asgi import Message, Scope
from omniwatch.tap.ear import Ear
from omniwatch.tap.line import Line
from omniwatch.tap.report import Reports
from omniwatch.tap.sessions import Sessions
from omniwatch.tap.stream_events import Moment, StreamEvents, peer_of

logger = logging.getLogger("omniwatch.tap")
STREAM_HEADER = b"x-omniwatch-stream"
"""The one header added to responses: the id under which the client can report on its stream."""
STREAM_PARAMETER = "omniwatch_stream"
"""The same by a websocket's query, chosen by a client that cannot read the handshake's headers (a browser)."""


class Observer(Protocol):
    """One connection. An observer may raise; the tap logs that and the server never sees it."""

    line: Line | None
    """The connection as the ear listens to it."""

    def received(self, message: Message) -> None:
        """See a message from the client, on its way to the server."""

    def sent(self, message: Message) -> Message:
        """See a message from the server; return it, or a copy with the one header added."""

    def over(self, reason: str) -> None:
        """The server is done with the connection: "closed", "cancelled" or "error"."""


class TapContext:
    """State shared by all connections of a tap: event sink, clock, ear, report ids, sessions."""

    def __init__(
        self,
        put: Callable[[Event], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        ear: Ear,
    ) -> None:
        self.put = put
        self.ear = ear
        self.clock = clock
        self.monotonic = monotonic
        self.reports = Reports()
        self.sessions = Sessions()
        """Duplex sessions that a client may take up again."""
        self.speaking_to: set[str] = set()
        """Names of streams with a chat request under way."""
        self._told: set[str] = set()

    def tell(self, message: str, *args: object) -> None:
        """Log it, the first time that it is to be said."""
        if message not in self._told:
            self._told.add(message)
            logger.warning(message, *args)

    def stream_events(self, name: str) -> StreamEvents:
        """Return a stream of that name, not yet started."""
        return StreamEvents(name, self.put, self.clock, self.monotonic)

    def now(self) -> Moment:
        """Return the present."""
        return Moment(self.clock(), self.monotonic())


def with_header(message: Message, token: str) -> Message:
    """Return the start of a response, or the accepting of a websocket, with the one header added."""
    headers = [*message.get("headers", ()), (STREAM_HEADER, token.encode())]
    return {**message, "headers": headers}


class WebsocketObserver(ABC):
    """A websocket is a stream of its own. The protocols say what its messages mean."""

    kind = ""

    def __init__(self, scope: Scope, context: TapContext) -> None:
        self.context = context
        self.line = context.ear.line(scope)
        self.stream_events = context.stream_events(f"{self.kind}-{secrets.token_hex(8)}")
        self.stream_events.line = self.line
        self._peer = peer_of(scope)
        self._over = False
        self._known_as = ""
        self._ids = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(STREAM_PARAMETER, [])[:1]
        for token in self._ids:
            context.reports.admit(token, self.stream_events, is_chosen=True)

    def received(self, message: Message) -> None:
        """See a message from the client."""
        if message["type"] == "websocket.receive":
            text = message.get("text")
            if text and not self._over:
                self.client_said(text)
        elif message["type"] == "websocket.disconnect":
            self.leave("disconnect", "aborted")

    def sent(self, message: Message) -> Message:
        """See a message from the server."""
        if message["type"] == "websocket.send":
            text = message.get("text")
            if text and not self._over:
                self.server_said(text)
        elif message["type"] == "websocket.accept":
            self.accepted()
            token = self.context.reports.hand_out(self.stream_events)
            self._ids.append(token)
            return with_header(message, token)
        elif message["type"] == "websocket.close":
            self.leave("closed", "failed")
        return message

    def over(self, reason: str) -> None:
        """See the end of the connection."""
        self.leave(reason, "aborted" if reason == "cancelled" else "failed")

    def known_as(self, token: str) -> None:
        """Let the client report on the stream by an id that it has from the server, the latest such one."""
        if token != self._known_as:
            self.context.reports.withdraw(self._known_as, self.stream_events)
            self.context.reports.admit(token, self.stream_events)
            self._ids = [*(one for one in self._ids if one != self._known_as), token]
            self._known_as = token

    def leave(self, reason: str, outcome: str) -> None:
        """End the stream, and as `outcome` the turns that are open."""
        if self._over:
            return
        self._over = True
        for token in self._ids:
            self.context.reports.withdraw(token, self.stream_events)
        self.stream_events.finish_all(outcome)
        self.stream_events.end(reason)

    def accepted(self) -> None:
        """The server took the connection."""
        self.start()

    def start(self) -> None:
        """Begin the stream."""
        self.stream_events.start(self._peer, self.kind)

    @abstractmethod
    def client_said(self, text: str) -> None:
        """See a text message from the client."""

    @abstractmethod
    def server_said(self, text: str) -> None:
        """See a text message from the server."""
