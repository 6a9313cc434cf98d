"""Start child processes that listen on an address, wait until they answer, stop them."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from omniwatch.system import http
from omniwatch.system.errors import UserError

START_S = 30.0
STOP_S = 10.0
MAX_ANSWER_BYTES = 256 * 2**20
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_PORT = 12_000
"""Above the ports that Prometheus, Grafana and their exporters have by default."""
TRIES = 1000
_handed_out: set[int] = set()


class ChildError(UserError):
    """A part of the chain is missing or did not start."""


class ChildProcess:
    """A child process with an address, its output kept in a file."""

    def __init__(self, name: str, argv: list[str], directory: Path, url: str = "") -> None:
        self.name = name
        self.url = url
        self.argv = argv
        self._log = directory / f"{name}.log"
        self.start()

    def start(self) -> None:
        """Start it, anew after it was killed."""
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def await_ready(self, path: str, within_s: float = START_S) -> None:
        """Wait until GET `path` answers 200. Raises ChildError with what the service last said."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                get(self.url + path)
                return
            except OSError:
                time.sleep(0.05)
        raise ChildError(f"{self.name} did not start: {self.last_words()}")

    def last_words(self) -> str:
        """Return the last line of its output."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {self.process.poll()}"

    def stop(self) -> None:
        """End it, by force if need be."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def get(url: str) -> bytes:
    """GET a local address. Raises OSError (an HTTP error status is one)."""
    with http.ask(url, timeout_s=10) as answer:
        if not answer.ok:
            raise OSError(f"HTTP {answer.status} {answer.reason}")
        return answer.read(MAX_ANSWER_BYTES)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now, each time another one.

    It lies below those that the kernel gives to connections: one of these could take the port before its server
    listens, or while that is started again. Raises ChildError where no free one is found.
    """
    first_given = int(EPHEMERAL_PORTS.read_text().split()[0])
    ours = range(FIRST_PORT, max(first_given, FIRST_PORT + 1))
    for _ in range(TRIES):
        port = random.SystemRandom().choice(ours)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _handed_out:
                _handed_out.add(port)
                return port
    raise ChildError(f"{TRIES} ports from {FIRST_PORT} to {ours[-1]} are in use")


def program(*names: str) -> str:
    """Find an installed program by the first of its names that is there. Raises ChildError."""
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise ChildError(f"{names[0]} is not installed; `make demo` installs it")
