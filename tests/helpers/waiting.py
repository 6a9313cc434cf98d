"""Await a condition instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 20.0, what: str = "") -> T:
    """Return the condition's first true value; fail the test when there was none in time."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        tick.wait(0.02)
    return value
