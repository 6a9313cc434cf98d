"""Decode JSON without reading its long strings, which are speech and pictures."""

from __future__ import annotations

from typing import AnyStr, TypeVar

import msgspec

T = TypeVar("T")

ELIDED = "\x7f"
"""Stands in a shortened string between its head and the number of bytes that it decodes to as base64."""
HEAD_BYTES = 128
"""What is kept of a long string: enough for the header of a WAV file."""
ZEROS = b"A" * 16384
"""So many letters of base64 are compared at once."""
SILENT = "~"
"""Ends a shortened string that, past its head, is zeros in base64: speech that is digital silence."""
WHOLE_BYTES = 16 * 2**10
"""JSON up to this size, in bytes or characters, is decoded as it is."""
INTRICATE_BYTES = 256 * 2**10
"""JSON with more than MAX_QUOTES is decoded as it is up to this size, and beyond it left unread."""
LONG_BYTES = 1024
"""A string longer than this is a long one."""
MAX_QUOTES = 4096
"""Quotes that end a string or stand escaped in one."""

_BACKSLASH = 0x5C


def read(decoder: msgspec.json.Decoder[T], data: str | bytes) -> T | None:
    """Decode JSON whose long strings may come shortened (see `shorten`); None for what cannot be read."""
    try:
        if len(data) <= WHOLE_BYTES:
            return decoder.decode(data)
        short = shorten(data.encode() if isinstance(data, str) else data)
        return None if short is None else decoder.decode(short)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def shorten(data: bytes) -> bytes | None:
    """Replace each long string of a large JSON text by its head, ELIDED and its size as decoded base64.

    A search for the closing quote passes over a megabyte of base64 in microseconds, where a JSON decoder would take
    each byte into its hand. None: not JSON, or too large and intricate to be worth reading.
    """
    kept: list[bytes] = []
    begin = at = quotes = 0
    while (opening := data.find(b'"', at)) >= 0:
        at = opening + 1
        while True:
            quotes += 1
            closing = data.find(b'"', at)
            if closing < 0:
                return None
            if quotes > MAX_QUOTES:
                return data if len(data) <= INTRICATE_BYTES else None
            escaped = data[closing - 1] == _BACKSLASH and _trailing_backslashes(data[at:closing]) % 2 == 1
            at = closing + 1
            if not escaped:
                break
        if closing - opening > LONG_BYTES:
            kept += [data[begin : opening + 1], _abridged(data, opening + 1, closing)]
            begin = closing
    kept.append(data[begin:])
    return b"".join(kept)


def _trailing_backslashes(text: bytes) -> int:
    return len(text) - len(text.rstrip(b"\\"))


def _abridged(data: bytes, start: int, stop: int) -> bytes:
    head = data[start : start + HEAD_BYTES]
    if b"\\" in head or not head.isascii():
        head = b""
    padding = data.count(b"=", stop - 2, stop)
    size = (stop - start) * 3 // 4 - padding
    begin, end = start + HEAD_BYTES, stop - padding
    is_silent = are_zeros(data, ZEROS, begin, end)
    return b"%b%b%d%b" % (head, ELIDED.encode(), size, SILENT.encode() if is_silent else b"")


def are_zeros(data: AnyStr, zeros: AnyStr, begin: int, end: int) -> bool:
    """Whether at least four letters of base64 stand for zeros, by comparisons in place: nothing is copied on the way of speech."""
    if end - begin < 4:
        return False
    while end - begin > len(zeros):
        if not data.startswith(zeros, begin):
            return False
        begin += len(zeros)
    return data.startswith(zeros[: end - begin], begin)
