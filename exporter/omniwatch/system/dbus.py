"""Read properties of objects on the system bus, each within a time that a scrape can wait.

jeepney speaks the protocol. The socket is our own because jeepney's waits for the bus' first answer without end.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageType, Parser, Properties, message_bus
from jeepney.auth import BEGIN, Authenticator

Value = str | int


class BusError(OSError):
    """The bus cannot be reached, took too long, or answered what is not understood."""


class Bus:
    """A connection to a message bus; every call is bounded by `timeout_s`. Raises BusError, and is then of no more use."""

    def __init__(self, address: Path, timeout_s: float = 0.2) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._serial = 0
        self._parser = Parser()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(str(address))
            authenticator = Authenticator()
            for line in authenticator:
                self._send(line)
                authenticator.feed(self._receive())
            self._send(BEGIN)
            self._ask([message_bus.Hello()])
        except (OSError, ValueError, LookupError, struct.error) as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """Leave the bus."""
        self._socket.close()

    def properties(
        self, service: str, path: str, wanted: list[tuple[str, str]]
    ) -> dict[tuple[str, str], Value]:
        """Read properties, given as (interface, name), of one object, in one round trip.

        Text and whole numbers only; a property the object does not have is left out. Raises BusError.
        """
        self._deadline = time.monotonic() + self._timeout_s
        calls = [
            Properties(DBusAddress(path, bus_name=service, interface=interface)).get(name)
            for interface, name in wanted
        ]
        try:
            replies = self._ask(calls)
            values = [
                reply.body[0][1] if reply.header.message_type is MessageType.method_return else None
                for reply in replies
            ]
        except (OSError, ValueError, LookupError, struct.error) as error:
            raise self._broken(error) from error
        return {
            key: value for key, value in zip(wanted, values, strict=True) if isinstance(value, (str, int))
        }

    def _ask(self, calls: list[Message]) -> list[Message]:
        serials = range(self._serial + 1, self._serial + 1 + len(calls))
        self._serial += len(calls)
        self._send(
            b"".join(call.serialise(serial=serial) for call, serial in zip(calls, serials, strict=True))
        )
        replies: dict[Any, Message] = {}
        while any(serial not in replies for serial in serials):
            message = self._parser.get_next_message()
            if message is None:
                self._parser.add_data(self._receive())
            else:
                replies[message.header.fields.get(HeaderFields.reply_serial)] = message
        return [replies[serial] for serial in serials]

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def _receive(self) -> bytes:
        self._socket.settimeout(self._left_s())
        data = self._socket.recv(65536)
        if not data:
            raise BusError("the bus hung up")
        return data

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise BusError("timed out")
        return left

    def _broken(self, error: Exception) -> BusError:
        self.close()
        return BusError(f"{self._address}: {getattr(error, 'strerror', None) or error}")
