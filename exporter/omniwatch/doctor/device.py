"""Read a device's files, run its commands and ask its addresses, within time and size limits."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from omniwatch.doctor.pseudonyms import Pseudonyms
from omniwatch.settings import Settings
from omniwatch.system import http

COMMAND_S = 20.0
FETCH_S = 5.0
MOST_BYTES = 8 * 2**20
"""Of one answer or command's output; what is longer is cut."""


class AbsentError(Exception):
    """A piece of evidence that cannot be had. The report shows the message in its place."""


def run(command: list[str]) -> str:
    """Return what a command prints. Raises AbsentError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
        )
    except subprocess.TimeoutExpired as error:
        raise AbsentError(f"{command[0]}: no answer within {COMMAND_S:.0f} s") from error
    except OSError as error:
        raise AbsentError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise AbsentError(f"{command[0]}: {last or f'exit code {done.returncode}'}")
    return done.stdout[-MOST_BYTES:].decode("utf-8", "replace")


def fetch(url: str) -> str:
    """Return what an address answers with status 200. Raises AbsentError."""
    try:
        with http.ask(url, timeout_s=FETCH_S) as answer:
            if answer.ok:
                return answer.read(MOST_BYTES, cut=True).decode("utf-8", "replace")
            said = answer.read(500, cut=True).decode("utf-8", "replace").strip().partition("\n")[0]
            raise AbsentError(f"{url}: status {answer.status}" + (f": {said}" if said else ""))
    except http.HttpError as error:
        raise AbsentError(f"{url}: {error}") from error


def _regular(path: Path) -> BinaryIO:
    """Open a file of the device. Raises AbsentError for one that never ends or keeps its reader waiting."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise AbsentError(f"{path}: not a regular file")
    return file


@dataclass(frozen=True)
class DeviceAccess:
    """How to reach a device's evidence, and how much of it is wanted. Paths below `root` are the device's own."""

    settings: Settings = field(default_factory=Settings)
    root: Path = Path("/")
    config: Path | None = None
    """omniwatch.yaml; None when there is none and the defaults hold."""
    web_config: Path | None = None
    prometheus: str = "http://127.0.0.1:9090"
    lines: int = 500
    since: str = "-1h"
    """As journalctl takes it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    run: Callable[[list[str]], str] = run
    fetch: Callable[[str], str] = fetch
    names: Pseudonyms = field(default_factory=Pseudonyms)
    """What clients are called in all that is gathered here."""

    def read(self, path: str | Path) -> str:
        """Return a file's text. Raises AbsentError."""
        file = self.at(path)
        try:
            with _regular(file) as content:
                return content.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise AbsentError(f"{file}: {error.strerror}") from error

    def last_lines(self, path: Path) -> list[bytes]:
        """Return the last lines of a file. Raises AbsentError."""
        try:
            with _regular(path) as content:
                cut = content.seek(0, os.SEEK_END) > MOST_BYTES
                content.seek(-MOST_BYTES if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
                lines = content.read(MOST_BYTES).splitlines(keepends=True)
        except OSError as error:
            raise AbsentError(f"{path}: {error.strerror}") from error
        return lines[1 if cut else 0 :][-self.lines :]

    def at(self, path: str | Path) -> Path:
        """Where a device's path is."""
        return self.root / str(path).lstrip("/")
