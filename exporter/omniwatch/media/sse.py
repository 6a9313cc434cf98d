"""Parse server-sent events (WHATWG HTML, section 9.2.6) from body chunks of any size."""

from __future__ import annotations

DONE = b"[DONE]"
"""Data of the last event of a streamed chat."""


class TooLongError(ValueError):
    """An event that does not end within the bound."""


class Events:
    """Collect body chunks and return the data of each whole event; comments and other fields are dropped.

    `max_bytes` bounds what is held between two chunks. An event that exceeds it raises TooLongError if `strict`, else it is
    skipped.
    """

    def __init__(self, max_bytes: int, *, strict: bool = True) -> None:
        self._max = max_bytes
        self._strict = strict
        self._line = bytearray()
        self._data: bytes | bytearray = b""
        self._has_data = False
        self._after_cr = False
        self._skipping = False

    def feed(self, body: bytes) -> list[bytes]:
        """Return the data of the events that `body` completes. Raises TooLongError."""
        if self._after_cr and body:
            body = body.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in body:
            self._after_cr = body.endswith(b"\r")
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        found: list[bytes] = []
        start = 0
        while (end := body.find(b"\n", start)) >= 0:
            if self._line:
                self._line += body[start:end]
                line = bytes(self._line)
                self._line.clear()
                self._end_line(line, 0, len(line))
            elif start < end:
                self._end_line(body, start, end)
            else:
                if self._data:
                    found.append(bytes(self._data))
                self._data, self._has_data, self._skipping = b"", False, False
            start = end + 1
        self._hold(body, start)
        return found

    def _end_line(self, text: bytes, start: int, end: int) -> None:
        if self._skipping or not text.startswith(b"data:", start, end):
            return
        start += 6 if text.startswith(b" ", start + 5, end) else 5
        if self._has_data:
            # One buffer: a list of short lines would take many times their bytes.
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += text[start:end]
        else:
            self._data, self._has_data = text[start:end], True

    def _hold(self, body: bytes, start: int) -> None:
        if not self._skipping and len(self._line) + len(self._data) + len(body) - start > self._max:
            if self._strict:
                raise TooLongError(f"an event of more than {self._max} bytes")
            self._data, self._has_data, self._skipping = b"", False, True
            self._line.clear()
        if not self._skipping:
            self._line += body[start:]
        elif not self._line:
            # Of a line that is skipped, only whether it is empty matters.
            self._line += body[start : start + 1]
