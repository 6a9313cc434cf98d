"""As much of HTTP/1.1 as a client of one server needs: a request's bytes, and an answer read as it comes. Pure."""

from __future__ import annotations

MAX_HEAD = 65_536


class HttpError(ValueError):
    """Bytes that are no answer, or stop in the middle of one."""


def request(method: str, path: str, host: str, headers: dict[str, str], body: bytes) -> bytes:
    """Return a request that asks for the connection to be closed after it. Raises ValueError for a header that breaks."""
    fields = {"Host": host, "Connection": "close", "Content-Length": str(len(body))} | headers
    for name, value in [*fields.items(), (method, path)]:
        if any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"not to be sent in a header: {name!r}: {value!r}")
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


class Answer:
    """One answer: `status` is 0 until its head is there, `headers` have lower-case names, `done` when nothing follows."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._rest = b""
        self._chunked = False
        self._left: int | None = None
        """Bytes of the chunk or the body still to come; None until the connection ends."""
        self._after_chunk = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connection; return those of the body. Raises HttpError."""
        data = self._rest + data
        self._rest = b""
        if not self.status:
            data = self._head(data)
            if not self.status:
                self._rest = data
                return b""
        if self.done:
            return b""
        if not self._chunked:
            if self._left is None:
                return data
            body = data[: self._left]
            self._left -= len(body)
            self.done = self._left == 0
            return body
        return self._chunks(data)

    def _head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MAX_HEAD:
                raise HttpError("a head without end")
            return data
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise HttpError(f"not an answer: {first[:80]!r}")
        if words[1].startswith("1"):
            return self._head(data[end + 4 :])
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        if self._chunked or self.status == 204:
            self._left = 0
        elif self.headers.get("content-length", "").isdecimal():
            self._left = int(self.headers["content-length"])
        self.done = self._left == 0 and not self._chunked
        return data[end + 4 :]

    def _chunks(self, data: bytes) -> bytes:
        pieces, at = [], 0
        while True:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._after_chunk = True
            start = at + 2 if self._after_chunk else at
            end = data.find(b"\r\n", start)
            if end < 0:
                if len(data) - at > 1024:
                    raise HttpError("a chunk without a size")
                self._rest = data[at:]
                break
            size = data[start:end].split(b";")[0].strip()
            try:
                self._left = int(size, 16)
            except ValueError:
                raise HttpError(f"not a chunk's size: {size[:20]!r}") from None
            at = end + 2
            self._after_chunk = False
            if not self._left:
                self.done = True
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
