"""A websocket server that means harm, by what it sends after a handshake that is in order."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from helpers.hostile_http import hostile

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""


def frame(payload: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """A frame of a server (RFC 6455, section 5.2)."""
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
    return bytes([opcode | (0x80 if final else 0)]) + length + payload


def message(**fields: object) -> bytes:
    return frame(json.dumps(fields).encode())


def for_ever(*pieces: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: itertools.cycle(pieces)


ENDLESS: dict[str, tuple[Callable[[], Iterable[bytes]], float]] = {
    "says nothing": (list, 0.0),
    "acknowledges frames": (for_ever(message(type="video.frame.ack") * 100), 0.0),
    "sends text": (for_ever(message(type="response.text.delta", delta="a") * 100), 0.0),
    "drips text": (for_ever(message(type="response.text.delta", delta="a")), 0.2),
    "sends empty speech": (for_ever(message(type="response.audio.delta", data="") * 100), 0.0),
    "sends pings": (for_ever(frame(b"x", 9) * 10), 0.01),
    "sends a message without end": (
        lambda: itertools.chain(
            [frame(b"{", final=False)], itertools.repeat(frame(b" " * 9000, 0, final=False))
        ),
        0.0,
    ),
}
"""What each says once it is asked, and the pause in seconds after each piece."""


@contextmanager
def talking(speech: Callable[[], Iterable[bytes]], pause_s: float = 0.0) -> Iterator[str]:
    """Shake hands with every client, then say so; gives the address."""

    def shake(request: bytes) -> bytes:
        key = re.search(rb"(?i)sec-websocket-key: (\S+)", request)
        accept = base64.b64encode(hashlib.sha1(key[1] + _GUID).digest()) if key else b""
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    with hostile(speech, pause_s, shake) as url:
        yield url.replace("http:", "ws:") + "/v1/video/chat/stream"
