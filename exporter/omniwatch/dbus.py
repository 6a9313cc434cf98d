"""Just enough of the D-Bus wire protocol to read properties of objects on the system bus, with no library.

Messages are written little-endian; replies are read in the order their sender chose.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_CALL, _RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = 1, 2, 3, 5, 6, 8
_HEADER_BYTES = 16
_LARGEST_BYTES = 1 << 20
_NUMBERS = {"u": (4, "I"), "i": (4, "i"), "t": (8, "Q"), "x": (8, "q"), "b": (4, "I")}

Value = str | int


class BusError(OSError):
    """The bus cannot be reached, took too long, or answered what is not understood."""


class Bus:
    """A connection to a message bus; every call is bounded by `timeout_s`. Raises BusError, and is then of no more use."""

    def __init__(self, address: Path, timeout_s: float = 0.2) -> None:
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(timeout_s)
        self._buffer = b""
        try:
            self._socket.connect(str(address))
            self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
            while b"\r\n" not in self._buffer:
                self._receive()
            answer, _, self._buffer = self._buffer.partition(b"\r\n")
            if not answer.startswith(b"OK "):
                raise BusError(f"{address}: the bus refused us: {answer.decode('ascii', 'replace')}")
            self._socket.sendall(b"BEGIN\r\n")
            bus = "org.freedesktop.DBus"
            self._ask([self._call(bus, "/org/freedesktop/DBus", bus, "Hello")])
        except OSError as error:
            self.close()
            raise BusError(f"{address}: {error.strerror or error}") from error

    def close(self) -> None:
        """Leave the bus."""
        self._socket.close()

    def properties(
        self, service: str, path: str, wanted: list[tuple[str, str]]
    ) -> dict[tuple[str, str], Value]:
        """Read properties, given as (interface, name), of one object, in one round trip.

        Text and whole numbers only; a property the object does not have is left out. Raises BusError.
        """
        reader = "org.freedesktop.DBus.Properties"
        calls = [self._call(service, path, reader, "Get", interface, name) for interface, name in wanted]
        try:
            replies = self._ask(calls)
        except OSError as error:
            self.close()
            raise BusError(str(error)) from error
        return {key: value for key, value in zip(wanted, replies, strict=True) if value is not None}

    def _call(self, service: str, path: str, interface: str, member: str, *words: str) -> bytes:
        self._serial += 1
        body = bytearray()
        for word in words:
            body += _text(word, len(body))
        fields = bytearray()
        for code, kind, value in (
            (_PATH, b"o", path),
            (_DESTINATION, b"s", service),
            (_INTERFACE, b"s", interface),
            (_MEMBER, b"s", member),
        ):
            fields += _pad(len(fields), 8) + bytes([code, 1]) + kind + b"\0"
            fields += _text(value, len(fields))
        if words:
            fields += _pad(len(fields), 8) + bytes([_SIGNATURE, 1]) + b"g\0"
            fields += bytes([len(words)]) + b"s" * len(words) + b"\0"
        head = struct.pack("<4B3I", ord("l"), _CALL, 0, 1, len(body), self._serial, len(fields))
        return head + bytes(fields) + _pad(len(fields), 8) + bytes(body)

    def _ask(self, calls: list[bytes]) -> list[Value | None]:
        first = self._serial - len(calls) + 1
        self._socket.sendall(b"".join(calls))
        answers: dict[int, Value | None] = {}
        while len(answers) < len(calls):
            kind, serial, value = self._message()
            if kind in (_RETURN, _ERROR) and serial >= first:
                answers[serial] = value
        return [answers.get(first + offset) for offset in range(len(calls))]

    def _message(self) -> tuple[int, int, Value | None]:
        while len(self._buffer) < _HEADER_BYTES:
            self._receive()
        order = "<" if self._buffer[:1] == b"l" else ">"
        body_bytes, _, field_bytes = struct.unpack_from(f"{order}3I", self._buffer, 4)
        body_at = _HEADER_BYTES + field_bytes + len(_pad(field_bytes, 8))
        end = body_at + body_bytes
        if end > _LARGEST_BYTES:
            raise BusError(f"a message of {end} bytes")
        while len(self._buffer) < end:
            self._receive()
        message, self._buffer = self._buffer[:end], self._buffer[end:]
        try:
            return _understand(message, order, field_bytes, body_at)
        except (struct.error, IndexError, ValueError) as error:
            raise BusError(f"an answer that is not understood: {error}") from error

    def _receive(self) -> None:
        got = self._socket.recv(65536)
        if not got:
            raise BusError("the bus hung up")
        self._buffer += got


def _understand(message: bytes, order: str, field_bytes: int, body_at: int) -> tuple[int, int, Value | None]:
    kind, serial, signature, at = message[1], 0, "", _HEADER_BYTES
    while at < _HEADER_BYTES + field_bytes:
        at += len(_pad(at, 8))
        code, signed = message[at], chr(message[at + 2])
        value, at = _read(message, order, signed, at + 4)
        if code == _REPLY_SERIAL:
            serial = int(value)
        elif code == _SIGNATURE:
            signature = str(value)
    if kind != _RETURN or signature != "v":
        return kind, serial, None
    size = message[body_at]
    inner = message[body_at + 1 : body_at + 1 + size].decode("ascii")
    if inner not in {"s", "o", *_NUMBERS}:
        return kind, serial, None
    return kind, serial, _read(message, order, inner, body_at + size + 2)[0]


def _read(message: bytes, order: str, kind: str, at: int) -> tuple[Value, int]:
    """Read one value; return it and where the next begins. Offsets count from the message's start, as alignment does."""
    if kind == "g":
        end = at + 1 + message[at]
        return message[at + 1 : end].decode("ascii"), end + 1
    if kind in _NUMBERS:
        width, letter = _NUMBERS[kind]
        at += len(_pad(at, width))
        (number,) = struct.unpack_from(f"{order}{letter}", message, at)
        return int(number), at + width
    at += len(_pad(at, 4))
    (size,) = struct.unpack_from(f"{order}I", message, at)
    return message[at + 4 : at + 4 + size].decode("utf-8"), at + 4 + size + 1


def _pad(length: int, width: int) -> bytes:
    return b"\0" * (-length % width)


def _text(value: str, at: int) -> bytes:
    raw = value.encode()
    return _pad(at, 4) + struct.pack("<I", len(raw)) + raw + b"\0"
