"""A system bus on which systemd tells of units, as the host's reader asks for them: what it says can be changed meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jeepney import HeaderFields, Message, Parser, new_error, new_method_return

from omniwatch.host.systemd import object_path

NO_QUOTA = 2**64 - 1
BEGIN = b"BEGIN\r\n"


class Unit:
    """A service that was started when this was made."""

    def __init__(self, state: str = "active", load: str = "loaded", start: str = "enabled") -> None:
        self.state = state
        self.load = load
        self.starts = start
        self.restarts = 0
        self.started_us = 0
        self.start()

    def start(self) -> None:
        """Its main process begins now."""
        self.started_us = round(time.monotonic() * 1e6)

    def start_again(self) -> None:
        """Its main process has ended and begins anew, by itself."""
        self.restarts += 1
        self.start()

    def properties(self) -> dict[str, tuple[str, Any]]:
        """What systemd says of it, each with its type on the bus."""
        return {
            "LoadState": ("s", self.load),
            "UnitFileState": ("s", self.starts),
            "ActiveState": ("s", self.state),
            "NRestarts": ("u", self.restarts),
            "CPUQuotaPerSecUSec": ("t", NO_QUOTA),
            "ExecMainStartTimestampMonotonic": ("t", self.started_us),
        }


@contextmanager
def systemd(directory: Path, **units: Unit) -> Iterator[None]:
    """Serve the bus at `directory`/system_bus_socket; of a unit its name without `.service`, - written as _."""
    known = {object_path(f"{name.replace('_', '-')}.service"): unit for name, unit in units.items()}
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "system_bus_socket"))
        listener.listen()

        def accept() -> None:
            with suppress(OSError):  # The listener is shut down.
                while True:
                    peer, _ = listener.accept()
                    threading.Thread(target=_serve, args=(peer, known), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(peer: socket.socket, known: dict[str, Unit]) -> None:
    with peer, suppress(OSError):
        greeting = b""
        while BEGIN not in greeting:
            asked = peer.recv(4096)
            if not asked:
                return
            greeting += asked
            if b"AUTH" in asked:
                peer.sendall(b"OK 00000000000000000000000000000001\r\n")
        parser, serial = Parser(), 0
        parser.add_data(greeting.partition(BEGIN)[2])
        while True:
            call = parser.get_next_message()
            if call is None:
                data = peer.recv(65536)
                if not data:
                    return
                parser.add_data(data)
                continue
            serial += 1
            peer.sendall(_answer(call, known).serialise(serial=serial))


def _answer(call: Message, known: dict[str, Unit]) -> Message:
    fields = call.header.fields
    if fields[HeaderFields.member] == "Hello":
        return new_method_return(call, "s", (":1.1",))
    unit = known.get(fields[HeaderFields.path])
    told = unit.properties() if unit else {"LoadState": ("s", "not-found"), "ActiveState": ("s", "inactive")}
    name = call.body[1]
    if name not in told:
        return new_error(call, "org.freedesktop.DBus.Error.UnknownProperty", "s", (name,))
    return new_method_return(call, "v", (told[name],))
