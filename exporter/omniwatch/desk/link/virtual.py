"""An asyncio event loop with a virtual clock: when all tasks wait, it jumps to the next timer.

Minutes of a mobile network pass in milliseconds, with the very code that runs in real time, and the same every time.
Only timers and what is in memory may be waited for: no sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


_kept: set[asyncio.Task[Any]] = set()


class StuckError(RuntimeError):
    """Every task waits, and for nothing that will ever come."""


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: what would have been waited is added to `now`."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StuckError("all tasks wait, and no timer is set")
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; its `time()` begins at 0 and stands still while anything can run."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return seconds since the loop began, on its own clock."""
        return self._jumping.now


def spawn(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine beside the caller; it ends with the loop at the latest."""
    task = asyncio.get_running_loop().create_task(work)
    _kept.add(task)
    task.add_done_callback(_kept.discard)
    return task


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own; what it leaves running is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
        finally:
            loop.close()
