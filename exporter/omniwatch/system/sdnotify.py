"""Tell systemd a service's state: ready, reloading, alive, stopping (sd_notify(3)), without libsystemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"
SEND_TIMEOUT_S = 1.0


def reloading(monotonic_s: float) -> str:
    """Return the message that a reload begins at this time of CLOCK_MONOTONIC; READY follows when it is over."""
    return f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_s * 1_000_000)}"


def status(text: str) -> str:
    """Return the message that shows `text`, put on one line, in `systemctl status`."""
    return "STATUS=" + " ".join(text.split())


def notify(message: str, environ: Mapping[str, str]) -> bool:
    """Send the message to NOTIFY_SOCKET; return whether it was sent. Without the variable nothing is done.

    Never raises: a service manager that does not listen is no reason to stop serving.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT_S)
            sender.sendto(message.encode(), address)
    except OSError:
        return False
    return True


def watchdog_interval(environ: Mapping[str, str], pid: int | None = None) -> float | None:
    """Return how often, in seconds, to send WATCHDOG: half of what systemd waits for it; None when it does not wait.

    `pid` is the process asked about, this one unless given: WATCHDOG_PID may name another.
    """
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
        wanted = int(environ.get("WATCHDOG_PID") or (pid or os.getpid()))
    except ValueError:
        return None
    if microseconds <= 0 or wanted != (pid or os.getpid()):
        return None
    return microseconds / 2_000_000
