"""Run turns over `WS /v1/video/chat/stream`: send frames of a picture and ask about it."""

from __future__ import annotations

import base64
import logging
import struct
from contextlib import ExitStack
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException

from omniwatch.desk.probe import Turn, TurnFailedError
from omniwatch.desk.probe.listening import Picture
from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.turn import MAX_ANSWER_S, MAX_MESSAGE_BYTES, Asking, Hearing, spoken_ms, take_turn
from omniwatch.desk.probe.websocket import CLOSE_S, Link, open_link
from omniwatch.tap.video import FATAL_ERRORS

log = logging.getLogger(__name__)

LEAD_FRAMES = 3
"""Frames shown before the first question: a server with no picture refuses to answer."""


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
        self._showed = False

    def turn(self, number: int) -> Turn:
        """Ask once, on the session that is open or a new one."""
        turn = take_turn(number, self._asking, self._converse)
        if turn.outcome != "ok":
            # What is left of its answer must not be taken for the next one's.
            if self._link is not None:
                self._link.abort()
            self.close()
        return turn

    def close(self) -> None:
        """Say that there is no more, and leave."""
        link, self._link = self._link, None
        if link is not None:
            try:
                link.send(CLOSE_S, type="video.done")
                link.close()
            except (WebSocketException, OSError):
                link.abort()
        try:
            self._closing.close()
        except Exception:
            log.debug("session not closed in order", exc_info=True)

    def _converse(self, hearing: Hearing) -> None:
        try:
            link = self._link or self._open()
            hearing.answered_as(link.stream_id)
            link.allow(MAX_MESSAGE_BYTES)
            while self._frames < LEAD_FRAMES:
                self._next(link, hearing, self._asking.clock() + self._asking.timeout_s)
            hearing.ask(self._asking.clock(), self._picture)
            link.send(self._asking.timeout_s, type="video.query", text=self._asking.text)
            self._listen(link, hearing)
        except ConnectionClosed as error:
            raise TurnFailedError("cut", f"the websocket was closed: {error}") from error

    def _open(self) -> Link:
        asking, target = self._asking, self._target
        self._link = link = open_link(target.url, target, asking, self._closing)
        self._picture = Picture()
        self._began_t = asking.clock()
        self._frames = 0
        link.send(asking.timeout_s, type="session.config", enable_frame_filter=False)
        return link

    def _listen(self, link: Link, hearing: Hearing) -> None:
        """Take messages until the answer is complete."""
        clock, timeout_s = self._asking.clock, self._asking.timeout_s
        deadline, ends_at = clock() + timeout_s, clock() + MAX_ANSWER_S
        text_done = spoke = False
        while True:
            if clock() > ends_at:
                raise TurnFailedError("timeout", f"the answer went on for more than {MAX_ANSWER_S:g} s")
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
                hearing.audio(t, spoken_ms(said.data or "", said.format), said.data, said.format)
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
        # Messages may come without a pause: no wait for them would ever be too long.
        if clock() >= deadline:
            raise TimeoutError
        if clock() >= due and not self._showed:
            self._show(link, hearing)
            return None
        self._showed = False
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
        self._showed = True
        # The picture is the session's: a turn that is not asked yet has no listener to keep it.
        self._picture = Picture(pts_ms, t, True)
        hearing.frame(t, pts_ms)
        frame = {"data": _image, "frame_id": f"f{self._frames}", "pts_ms": round(pts_ms, 3)}
        link.send(self._asking.timeout_s, type="video.frame", **frame)
