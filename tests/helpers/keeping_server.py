"""A server that speaks frames, answers reports and pings, and keeps connections: in virtual time, or on sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from omniwatch import frames
from omniwatch.client.endpoint import Reader, Writer
from omniwatch.desk.link import memory, virtual
from omniwatch.frames import Kind

HANDSHAKE_S = 0.1
CHAT, REPORT, PING = "POST /v1/chat/completions", "POST /omniwatch/report", "GET /health"
OK = b"HTTP/1.1 200 -\r\ncontent-length: 0\r\n"
TAKEN = b"HTTP/1.1 204 -\r\n"
SOUND = b'{"codec": "pcm16", "sample_rate_hz": 100, "channels": 1}'


class Asked(NamedTuple):
    """A request: when, on which connection, what."""

    t: float
    conn: int
    what: str
    body: dict[str, Any]


class KeepingServer:
    """Speaks so many frames of 80 ms, each at its time, and answers reports and pings. It keeps connections."""

    def __init__(self, due_s: list[float], report: bytes = TAKEN, ping: bytes = OK) -> None:
        self.due_s = due_s
        self.report, self.ping = report, ping
        self.asked: list[Asked] = []
        self.open: set[int] = set()
        self.connections = 0
        self.on_asked: Callable[[Asked, Writer], bool] = lambda asked, end: False
        """Whether this request is dealt with."""

    async def connect(self) -> tuple[memory.End, memory.End]:
        """Open a connection in memory."""
        await asyncio.sleep(HANDSHAKE_S)
        ours, theirs = memory.duplex()
        virtual.spawn(self.serve(theirs, theirs))
        return ours, ours

    def of(self, what: str) -> list[Asked]:
        """Return the requests of one kind."""
        return [asked for asked in self.asked if asked.what == what]

    async def serve(self, reader: Reader, end: Writer) -> None:
        """Answer one connection, of memory or of sockets."""
        conn, data = self.connections, b""
        self.connections += 1
        self.open.add(conn)
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    if not (more := await reader.read(65_536)):
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                first, *lines = head.decode().lower().split("\r\n")
                said = dict(line.split(": ", 1) for line in lines)
                # As Resume does: what follows a question is not waited for.
                length = int(said.get("content-length", "0")) - int(said.get("x-omni-padding", "0"))
                while len(data) < length:
                    data += await reader.read(65_536)
                body, data = data[:length], data[length:]
                now = asyncio.get_running_loop().time()
                method, path, _ = first.split(" ")
                asked = Asked(now, conn, f"{method.upper()} {path}", json.loads(body or b"{}"))
                self.asked.append(asked)
                if self.on_asked(asked, end):
                    continue
                if asked.what == CHAT:
                    await self._speak(end)
                    return
                end.write((self.report if asked.what == REPORT else self.ping) + b"\r\n")
        except ConnectionError:
            pass
        finally:
            self.open.discard(conn)
            end.close()

    async def _speak(self, end: Writer) -> None:
        began = asyncio.get_running_loop().time()
        ids = f"x-omni-resume: {'S' * 20}\r\nx-omniwatch-stream: {'R' * 32}\r\nx-omni-first-id: 0"
        end.write(f"HTTP/1.1 200 -\r\n{ids}\r\n\r\n".encode())
        end.write(frames.encode(2**32 - 1, SOUND, kind=Kind.FORMAT, part=1))
        for number, due_s in enumerate(self.due_s):
            while (left_s := began + due_s - asyncio.get_running_loop().time()) > 1e-9:
                # As the heartbeats of a server that waits for its model.
                await asyncio.sleep(min(0.25, left_s))
                end.write(frames.encode(0, b"", kind=Kind.IDLE))
            end.write(frames.encode(number, bytes(16)))
        end.write(frames.encode(len(self.due_s) - 1, b'{"reason": "done"}', kind=Kind.END, part=1))
