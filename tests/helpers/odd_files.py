"""What may stand in the place of a file and is none, and files that a reader must not read to their end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    # Of a name of at most 107 bytes, which a test's folder may be past.
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def _endless(path: Path) -> None:
    """More than any reader takes, and nothing on the disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "folder": lambda path: path.mkdir(),
}
ENDLESS = _endless
