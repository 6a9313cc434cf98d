"""A small HTTP/1.1 server for one ASGI application over any pair of reader and writer: runs in virtual time, too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from omniwatch.tap.asgi import App, Message

if TYPE_CHECKING:
    from omniwatch.client.endpoint import Reader, Writer

MAX_HEAD = 65_536


async def serve(app: App, reader: Reader, writer: Writer, peer: tuple[str, int] = ("127.0.0.1", 0)) -> None:
    """Answer one request with the application, then close. A connection that breaks is a client that left."""
    try:
        data = b""
        while b"\r\n\r\n" not in data:
            more = await reader.read(65_536)
            if not more or len(data) > MAX_HEAD:
                return
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ")
        headers = [(n.strip().lower(), v.strip()) for n, _, v in (line.partition(b":") for line in lines)]
        length = int(dict(headers).get(b"content-length", b"0"))
        path, _, query = target.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
            "client": peer,
        }
        await _Exchange(reader, writer, body, length).run(app, scope)
    except ConnectionError:
        pass
    finally:
        writer.close()


class _Exchange:
    """One request and its answer, in chunks unless the application states a length."""

    def __init__(self, reader: Reader, writer: Writer, body: bytes, length: int) -> None:
        self._writer = writer
        self._missing = length
        self._request: asyncio.Queue[Message] = asyncio.Queue()
        self._take(body)
        self._left = asyncio.ensure_future(self._until_left(reader))
        self._chunked = False

    async def run(self, app: App, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._left.cancel()

    def _take(self, body: bytes) -> None:
        self._missing -= len(body)
        self._request.put_nowait({"type": "http.request", "body": body, "more_body": self._missing > 0})

    async def _until_left(self, reader: Reader) -> None:
        try:
            while data := await reader.read(65_536):
                if self._missing > 0:
                    self._take(data)
        except ConnectionError:
            pass

    async def _receive(self) -> Message:
        asked = asyncio.ensure_future(self._request.get())
        try:
            await asyncio.wait({asked, self._left}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else {"type": "http.disconnect"}
        finally:
            asked.cancel()

    async def _send(self, message: Message) -> None:
        if self._left.done():
            return
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message["headers"]]
            self._chunked = message["status"] != 204 and b"content-length" not in dict(headers)
            if self._chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            lines = [b"HTTP/1.1 %d -" % message["status"], *(b"%s: %s" % pair for pair in headers), b"", b""]
            self._writer.write(b"\r\n".join(lines))
        else:
            body = message.get("body", b"")
            if self._chunked:
                body = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
                body += b"" if message.get("more_body") else b"0\r\n\r\n"
            self._writer.write(body)
        try:
            await self._writer.drain()
        except ConnectionError:
            # As servers do: what is sent to a client that left is gone, and the application is told when it asks.
            await asyncio.wait({self._left})
