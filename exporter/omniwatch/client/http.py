"""Encode HTTP/1.1 requests and parse responses as they arrive, by h11. Pure."""

from __future__ import annotations

import h11

MAX_HEAD = 65_536
"""Longest head of a response, bytes."""
MAX_CHUNK_LINE = 1024
"""Longest line that states a chunk's size, bytes."""
MAX_INFORMATIONAL = 20
"""Most responses of status 1xx before the final one."""


class HttpError(ValueError):
    """Bytes that are not a valid HTTP response, or a response beyond the client's limits."""


def encode_request(method: str, path: str, host: str, headers: dict[str, str], body: bytes) -> bytes:
    """Encode a request after which the server closes the connection, unless `headers` say otherwise.

    Raises ValueError for an invalid header.
    """
    return _encode(h11.Connection(h11.CLIENT), method, path, host, headers, body)


def _encode(
    connection: h11.Connection, method: str, path: str, host: str, headers: dict[str, str], body: bytes
) -> bytes:
    fields = {"Host": host, "Connection": "close", "Content-Length": str(len(body))} | headers
    try:
        request = h11.Request(
            method=method,
            target=path.encode("latin-1"),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()],
        )
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise ValueError(f"invalid request line or header: {error}") from None
    data = connection.send(request) or b""
    if body:
        data += connection.send(h11.Data(data=body)) or b""
    return data + (connection.send(h11.EndOfMessage()) or b"")


class Response:
    """Parse one response. `status` is 0 before its head, `headers` have lower-case names, `done` tells its end."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self.is_last = False
        """Whether nothing can be asked on the connection after it."""
        self._informational = 0
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        # h11 parses a response only after a request; which one does not matter.
        _encode(self._connection, "POST", "/", "-", {}, b"")

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connection; return those of the body. Raises HttpError."""
        if not data or self.done:
            return b""
        try:
            self._connection.receive_data(data)
            return self._read_events()
        except h11.RemoteProtocolError as error:
            raise HttpError(f"not a valid HTTP response: {error}") from None

    def _read_events(self) -> bytes:
        pieces: list[bytes] = []
        while not self.done:
            event = self._connection.next_event()
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
                }
                said = self.headers.get("connection", "").lower()
                self.is_last = "close" in said or event.http_version == b"1.0"
            elif isinstance(event, h11.EndOfMessage):
                self.done = True
                self.is_last = self.is_last or bool(self._connection.trailing_data[0])
            elif isinstance(event, h11.InformationalResponse):
                self._informational += 1
                if self._informational > MAX_INFORMATIONAL:
                    raise HttpError(f"more than {MAX_INFORMATIONAL} responses of status 1xx")
            else:
                break
        if self.status and not self.done and len(self._connection.trailing_data[0]) > MAX_CHUNK_LINE:
            raise HttpError("a chunk without a size")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
