"""Open a TUN device, by which a process carries the packets of others."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable

TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEADER = 0x1001


def open_device(pattern: str) -> tuple[int, str]:
    """Open a new device; return its file descriptor, which does not block, and its name. Raises OSError.

    In `pattern`, %d stands for the first number that is free.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    named = fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", pattern.encode(), IFF_TUN_WITHOUT_HEADER))
    return device, named[:16].rstrip(b"\0").decode()


def go_before_others() -> None:
    """Have this process run before all others, as a network would, by a way that is allowed, if any is."""
    ways: tuple[Callable[[], None], ...] = (
        lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    )
    for way in ways:
        try:
            way()
            return
        except OSError:
            continue
