"""A websocket for a client that asks and listens in one thread."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from omniwatch.desk.probe import TurnFailedError
from omniwatch.desk.probe.reporter import STREAM_HEADER
from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.turn import MAX_MESSAGE_BYTES, Asking
from omniwatch.system.http import Deadline, explain, open_socket

CLOSE_S = 1.0


class Link:
    """A websocket for one thread, whose event loop has another, to answer pings in time.

    The library's own client for threads reads and writes one TLS connection from two of them. Where the server says nothing
    after TLS's handshake, it waits for its reader for ever.
    """

    def __init__(self, portal: BlockingPortal, connection: ClientConnection) -> None:
        self._portal = portal
        self._connection = connection
        self._left_bytes = 0

    def allow(self, more_bytes: int) -> None:
        """Let so many bytes be received from now on."""
        self._left_bytes = more_bytes

    @property
    def stream_id(self) -> str | None:
        """Return what the tap calls the stream, where there is one."""
        response = self._connection.response
        return response.headers.get(STREAM_HEADER) if response else None

    def send(self, timeout_s: float, **message: Any) -> None:
        """Send a message. Raises TimeoutError where the server takes no more."""

        async def send() -> None:
            with anyio.fail_after(timeout_s):
                await self._connection.send(json.dumps(message))

        self._portal.call(send)

    def close(self) -> None:
        """Say goodbye. Raises TimeoutError where the server takes it too slowly."""

        async def close() -> None:
            with anyio.fail_after(CLOSE_S):
                await self._connection.close()

        self._portal.call(close)

    def abort(self) -> None:
        """Let go of a server that reads no more: the library would wait for it to take what is to be sent."""
        self._portal.call(self._connection.transport.abort)

    def receive(self, timeout_s: float) -> str | bytes:
        """Return the next message. Raises TimeoutError, and TurnFailedError beyond the bound on its bytes."""

        async def receive() -> str | bytes:
            with anyio.fail_after(timeout_s):
                return await self._connection.recv()

        message = self._portal.call(receive)
        self._left_bytes -= len(message)
        if self._left_bytes < 0:
            raise TurnFailedError("malformed", f"an answer of more than {MAX_MESSAGE_BYTES} bytes")
        return message


def open_link(url: str, target: Target, asking: Asking, closing: ExitStack) -> Link:
    """Connect to `url` of the target; `closing` ends what that begins. Raises TurnFailedError."""
    try:
        # The library resolves the name in a thread of its own, which nothing ends.
        deadline = Deadline(asking.timeout_s, asking.clock)
        reached = closing.enter_context(open_socket(target.host, target.port, deadline))
        reached.setblocking(False)
        portal = closing.enter_context(start_blocking_portal())
        connecting = connect(
            url,
            sock=reached,
            additional_headers=dict(asking.headers),
            open_timeout=deadline.left_s(),
            close_timeout=CLOSE_S,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            proxy=None,
        )
        connection = closing.enter_context(portal.wrap_async_context_manager(connecting))
        return Link(portal, connection)
    except InvalidStatus as error:
        answer = error.response
        said = (answer.body or b"")[:300].decode("utf-8", "replace")
        raise TurnFailedError("error", f"{answer.status_code} {answer.reason_phrase} {said}") from error
    except (InvalidHandshake, InvalidURI) as error:
        raise TurnFailedError("malformed", f"no websocket: {error}") from error
    # Python 3.10's asyncio has a TimeoutError of its own, which is no OSError.
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        raise TurnFailedError("unreachable", f"{target.authority}: {explain(error)}") from error
    except ValueError as error:
        # As for chat, no redirection is followed.
        raise TurnFailedError("error", str(error)) from error
