"""Assemble the events of a server-sent event stream from its lines."""

from __future__ import annotations

from collections.abc import Iterator

MAX_LINE_BYTES = 4 * 2**20
"""The longest line of server-sent events that is put together from pieces: over a minute of speech."""


class EventLines:
    """The `data:` lines of server-sent events, put together again however the body was cut.

    Each line is taken for an event of its own: JSON as these servers write it has no line ends.
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._too_long = False

    def feed(self, body: bytes) -> Iterator[bytes]:
        """Yield the data of each line that ends in this piece of the body."""
        start = 0
        while (end := body.find(b"\n", start)) >= 0:
            if self._partial or self._too_long:
                line = b"" if self._too_long else bytes(self._partial) + body[start:end]
                self._partial.clear()
                self._too_long = False
                if line.startswith(b"data:"):
                    yield line[5:]
            elif body.startswith(b"data:", start):
                yield body[start + 5 : end]
            start = end + 1
        if len(self._partial) + len(body) - start > MAX_LINE_BYTES:
            self._partial.clear()
            self._too_long = True
        elif not self._too_long:
            self._partial += body[start:]
