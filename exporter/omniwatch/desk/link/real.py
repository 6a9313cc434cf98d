"""A real path: two network namespaces, joined by a carrier that treats packets as a scenario says.

The kernel's own TCP stands at both ends, with its congestion control, its handshakes and its timeouts. It needs root (or
CAP_NET_ADMIN and CAP_SYS_ADMIN), `ip` of iproute2, and /dev/net/tun.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import IO

import msgspec

from omniwatch.desk.link.carrier import Counts
from omniwatch.desk.link.path import Blackout
from omniwatch.desk.link.scenario import ScenarioError

SERVER = "198.18.0.1"
"""RFC 2544 sets 198.18.0.0/15 aside for measurements."""
CLIENTS = [f"198.18.{1 + number // 250}.{1 + number % 250}" for number in range(10_000)]
"""The client's addresses, one after the other."""
LATE_SHARE = 0.01
"""A run with a larger share of late packets says more about this machine than about the network."""


class RealPath:
    """The path, up while the context lasts. `server` and `client` are the namespaces' names, `counts` is there afterwards."""

    def __init__(self, scenario: str, seed: int) -> None:
        self.server = f"omniwatch-{os.getpid()}-{next(_numbers)}-server"
        self.client = self.server.removesuffix("server") + "client"
        self.address = SERVER
        self.client_address = CLIENTS[0]
        self.happened: list[Blackout] = []
        self.counts = Counts()
        self._command = [sys.executable, "-m", "omniwatch.desk.link.carrier", scenario, str(seed)]

    @property
    def believable(self) -> bool:
        """Tell whether the carrier kept its times. Asked afterwards."""
        return self.counts.late <= LATE_SHARE * max(1, self.counts.carried)

    def __enter__(self) -> RealPath:
        with contextlib.ExitStack() as undo:
            for name in (self.server, self.client):
                _ip("netns", "add", name)
                undo.callback(_ip, "netns", "delete", name)
            carrier = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            undo.callback(carrier.wait)
            undo.callback(carrier.kill)
            assert carrier.stdin is not None
            assert carrier.stdout is not None
            self._stdin, stdout = carrier.stdin, carrier.stdout
            devices = stdout.readline().split()
            if len(devices) != 2:
                raise ScenarioError("the real path is not up: it needs root and /dev/net/tun")
            self._device = devices[1]
            for name, device in zip((self.server, self.client), devices, strict=True):
                _ip("link", "set", device, "netns", name)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", device, "up")
            _ip("-n", self.server, "address", "add", f"{SERVER}/32", "dev", devices[0])
            _ip("-n", self.server, "route", "add", "198.18.0.0/15", "dev", devices[0])
            self._move_to(CLIENTS[0])
            self._reader = threading.Thread(target=self._read, args=(stdout,), daemon=True)
            self._reader.start()
            self._stdin.write("go\n")
            self._stdin.flush()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._undo:
            self._stdin.close()
            self._reader.join(10.0)

    def leave(self) -> None:
        """Take the client's device down: nothing passes any more, and nobody is told."""
        _ip("-n", self.client, "link", "set", self._device, "down")

    def within(self, namespace: str, *command: str) -> list[str]:
        """Return the command that runs `command` in one of the two namespaces."""
        return ["ip", "netns", "exec", namespace, *command]

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            said = json.loads(line)
            if "carried" in said:
                self.counts = msgspec.convert(said, Counts)
                continue
            blackout = Blackout(**said)
            self.happened.append(blackout)
            if blackout.why.startswith("handover") and blackout.cut:
                self._move_to(CLIENTS[len(self.happened)])

    def _move_to(self, address: str) -> None:
        """Give the client its next address; what was connected from the last one can send nothing any more."""
        _ip("-n", self.client, "address", "flush", "dev", self._device)
        _ip("-n", self.client, "address", "add", f"{address}/32", "dev", self._device)
        _ip("-n", self.client, "route", "replace", "198.18.0.0/15", "dev", self._device, "src", address)
        self.client_address = address


_numbers: Iterator[int] = itertools.count()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
