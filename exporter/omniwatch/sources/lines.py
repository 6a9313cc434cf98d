"""Split a byte stream into lines, in bounded memory."""

from __future__ import annotations

from omniwatch.events import MAX_LINE_BYTES


class LineBuffer:
    """Holds back the line that has no end yet; one of more than `limit` bytes is dropped up to its end.

    `oversize` counts the lines dropped so. `pending` is what is held back, b"" while a line is being dropped.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.oversize = 0
        self._limit = limit
        self._held = bytearray()
        self._dropping = False

    @property
    def pending(self) -> bytes:
        """The beginning of a line, its end not seen yet."""
        return bytes(self._held)

    def clear(self) -> None:
        """Forget the line that has no end."""
        self._held.clear()
        self._dropping = False

    def cut(self, chunk: bytes) -> bytes:
        """Take the next bytes of the stream; return the whole lines that they complete, line ends included."""
        # A line within one piece is within the limit: only the one that a piece's first line end closes can be over.
        if len(chunk) > self._limit:
            pieces = (chunk[at : at + self._limit] for at in range(0, len(chunk), self._limit))
            return b"".join(map(self.cut, pieces))
        first = chunk.find(b"\n")
        if first < 0:
            self._hold(chunk)
            return b""
        last = chunk.rfind(b"\n")
        self._hold(chunk[:first])
        if self._dropping:
            lines = chunk[first + 1 : last + 1]
        else:
            lines = bytes(self._held) + chunk[first : last + 1]
        self.clear()
        self._hold(chunk[last + 1 :])
        return lines

    def _hold(self, part: bytes) -> None:
        if self._dropping:
            return
        self._held += part
        if len(self._held) > self._limit:
            self.oversize += 1
            self._held.clear()
            self._dropping = True
