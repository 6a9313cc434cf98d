"""Read the body of a request, within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, BinaryIO

from omniwatch.web.response import Response

LENGTH = re.compile(r"[0-9]{1,15}")
"""A Content-Length that is looked at."""
SKIPPED_AT_ONCE = 65_536


class Body:
    """The bytes that a request announces behind its head; no byte beyond them is read. Raises OSError."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._left = length

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer where the body or the connection ends before."""
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data

    def skip(self, max_bytes: int) -> None:
        """Read on to the end of the body, but no more than `max_bytes`, and throw that away."""
        max_left = max(0, self._left - max_bytes)
        while self._left > max_left and self.read(min(SKIPPED_AT_ONCE, self._left - max_left)):
            pass


def length_of(announced: str | None) -> int | None:
    """Return the length that a Content-Length announces; None where there is none or it is no number."""
    return int(announced) if announced is not None and LENGTH.fullmatch(announced) else None


def with_body(answer: Callable[[bytes], Response], max_bytes: int) -> Callable[[dict[str, Any]], Response]:
    """Return a page that answers by the request's body, of at most `max_bytes`."""

    def read_first(environ: dict[str, Any]) -> Response:
        announced = environ.get("CONTENT_LENGTH")
        if not announced:
            return Response("411 Length Required", b"expected the header Content-Length\n")
        if not (announced.isascii() and announced.isdigit()):
            return Response("400 Bad Request", b"Content-Length: not a number\n")
        length = length_of(announced)
        if length is None or length > max_bytes:
            return Response("413 Content Too Large", f"expected at most {max_bytes} bytes\n".encode())
        try:
            body = environ["wsgi.input"].read(length)
        except TimeoutError:
            return Response("408 Request Timeout", b"the request came too slowly\n")
        if len(body) < length:
            return Response("400 Bad Request", b"the body ended before its Content-Length\n")
        return answer(body)

    return read_first
