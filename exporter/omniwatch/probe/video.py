"""Run turns over `WS /v1/video/chat/stream`: send frames of a picture and ask about it."""

from __future__ import annotations

import base64
import json
import socket
import struct
from contextlib import ExitStack
from typing import Any

import anyio
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)

from omniwatch.probe import Turn, TurnFailedError
from omniwatch.probe.listening import Picture
from omniwatch.probe.report import STREAM_HEADER
from omniwatch.probe.target import Target
from omniwatch.probe.turn import MAX_MESSAGE_BYTES, Asking, Hearing, take_turn
from omniwatch.system.http import explain
from omniwatch.tap.audio import duration_ms
from omniwatch.tap.video import FATAL_ERRORS

LEAD_FRAMES = 3
"""Frames shown before the first question: a server with no picture refuses to answer."""
CLOSE_S = 1.0


def grey_jpeg(side: int = 64) -> bytes:
    """Return a grey square, `side` pixels wide (a multiple of 8), as a baseline JPEG (ITU-T T.81).

    Every quantizer is 1 and both Huffman tables hold one code of one bit, "0": no change of brightness, and the end of
    the block. So each block of 8x8 pixels takes two bits.
    """
    quantizers = b"\0" + b"\1" * 64
    frame = struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0"
    code = b"\1" + bytes(15) + b"\0"
    scan = b"\1\1\0\0\x3f\0"
    segments = ((0xDB, quantizers), (0xC0, frame), (0xC4, b"\0" + code), (0xC4, b"\x10" + code), (0xDA, scan))
    head = b"".join(
        struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content for marker, content in segments
    )
    return b"\xff\xd8" + head + bytes((side // 8) ** 2 // 4) + b"\xff\xd9"


class Said(msgspec.Struct):
    """What is used of the server's messages."""

    type: str
    data: str | None = None
    delta: Any = None
    format: str | None = None
    message: str | None = None


_said = msgspec.json.Decoder(Said)
_image = base64.b64encode(grey_jpeg()).decode()


class Link:
    """A websocket for one thread, whose event loop has another, to answer pings in time.

    The library's own client for threads reads and writes one TLS connection from two of them. Where the server says nothing
    after TLS's handshake, it waits for its reader for ever.
    """

    def __init__(self, portal: BlockingPortal, connection: ClientConnection) -> None:
        self._portal = portal
        self._connection = connection

    @property
    def stream_id(self) -> str | None:
        """Return what the tap calls the stream, where there is one."""
        response = self._connection.response
        return response.headers.get(STREAM_HEADER) if response else None

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._portal.call(self._connection.send, json.dumps(message))

    def receive(self, timeout_s: float) -> str | bytes:
        """Return the next message. Raises TimeoutError."""

        async def receive() -> str | bytes:
            with anyio.fail_after(timeout_s):
                return await self._connection.recv()

        return self._portal.call(receive)


class VideoClient:
    """A session with a camera of `fps` frames a second. It is opened anew after a turn that failed."""

    def __init__(self, target: Target, asking: Asking) -> None:
        self._target = target
        self._asking = asking
        self._link: Link | None = None
        self._closing = ExitStack()
        self._picture = Picture()
        self._began_t = 0.0
        self._frames = 0

    def turn(self, number: int) -> Turn:
        """Ask once, on the session that is open or a new one."""
        turn = take_turn(number, self._asking, self._converse)
        if turn.outcome != "ok":
            # What is left of its answer must not be taken for the next one's.
            self.close()
        return turn

    def close(self) -> None:
        """Say that there is no more, and leave."""
        link, self._link = self._link, None
        if link is not None:
            try:
                link.send(type="video.done")
            except (WebSocketException, OSError):
                pass
        self._closing.close()

    def _converse(self, hearing: Hearing) -> None:
        try:
            link = self._link or self._open()
            hearing.answered_as(link.stream_id)
            while self._frames < LEAD_FRAMES:
                self._next(link, hearing, self._asking.clock() + self._asking.timeout_s)
            hearing.ask(self._asking.clock(), self._picture)
            link.send(type="video.query", text=self._asking.text)
            self._listen(link, hearing)
        except ConnectionClosed as error:
            raise TurnFailedError("cut", f"the websocket was closed: {error}") from error

    def _open(self) -> Link:
        asking, target = self._asking, self._target
        try:
            reached = socket.create_connection((target.host, target.port), asking.timeout_s)
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reached.setblocking(False)
            portal = self._closing.enter_context(start_blocking_portal())
            connecting = connect(
                target.url,
                sock=reached,
                additional_headers=dict(asking.headers),
                open_timeout=asking.timeout_s,
                close_timeout=CLOSE_S,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                proxy=None,
            )
            connection = self._closing.enter_context(portal.wrap_async_context_manager(connecting))
            self._link = link = Link(portal, connection)
        except InvalidStatus as error:
            answer = error.response
            said = (answer.body or b"")[:300].decode("utf-8", "replace")
            raise TurnFailedError("error", f"{answer.status_code} {answer.reason_phrase} {said}") from error
        except (InvalidHandshake, InvalidURI) as error:
            raise TurnFailedError("malformed", f"no websocket: {error}") from error
        except (OSError, EOFError) as error:
            raise TurnFailedError("unreachable", f"{self._target.authority}: {explain(error)}") from error
        except ValueError as error:
            # As for chat, no redirection is followed.
            raise TurnFailedError("error", str(error)) from error
        self._picture = Picture()
        self._began_t = asking.clock()
        self._frames = 0
        link.send(type="session.config", enable_frame_filter=False)
        return link

    def _listen(self, link: Link, hearing: Hearing) -> None:
        """Take messages until the answer is complete."""
        clock, timeout_s = self._asking.clock, self._asking.timeout_s
        deadline = clock() + timeout_s
        text_done = spoke = False
        while True:
            try:
                said = self._next(link, hearing, deadline)
            except TimeoutError:
                if text_done and not spoke:
                    return
                raise
            if said is None or said.type == "video.frame.ack":
                continue
            t = clock()
            deadline = t + timeout_s
            if said.type in ("response.output_audio.delta", "response.audio.delta"):
                hearing.audio(t, duration_ms(said.data or "", said.format), said.data, said.format)
                spoke = True
            elif said.type in ("response.output_audio.done", "response.audio.done"):
                return
            elif said.type == "response.text.delta" and isinstance(said.delta, str):
                hearing.said(said.delta)
            elif said.type == "response.text.done":
                text_done = True
            elif said.type == "session.done":
                raise TurnFailedError("cut", "the server ended the session")
            elif said.type == "error" and (said.message or "").startswith(FATAL_ERRORS):
                raise TurnFailedError("error", said.message or "")

    def _next(self, link: Link, hearing: Hearing, deadline: float) -> Said | None:
        """Return the next message, or None where it was time for a frame of the picture, which was sent."""
        clock = self._asking.clock
        due = self._began_t + self._frames / self._asking.fps
        try:
            raw = link.receive(max(0.0, min(due, deadline) - clock()))
        except TimeoutError:
            if clock() >= deadline:
                raise
            self._show(link, hearing)
            return None
        try:
            return _said.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TurnFailedError("malformed", f"{error}: {raw[:60]!r}") from error

    def _show(self, link: Link, hearing: Hearing) -> None:
        t = self._asking.clock()
        pts_ms = (t - self._began_t) * 1000.0
        self._frames += 1
        # The picture is the session's: a turn that is not asked yet has no listener to keep it.
        self._picture = Picture(pts_ms, t, True)
        hearing.frame(t, pts_ms)
        link.send(type="video.frame", data=_image, frame_id=f"f{self._frames}", pts_ms=round(pts_ms, 3))
