"""Persist undelivered messages across restarts of the bridge, in one file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from omniwatch.notify.messages import Message
from omniwatch.notify.outbox import Waiting
from omniwatch.system import atomic_write, leftovers, user_file

log = logging.getLogger(__name__)
NAME = "waiting.json"


class Entry(msgspec.Struct, frozen=True):
    """A message that waits for `robot`, and for how many seconds more it is to be tried."""

    robot: str
    left_s: float
    message: Message


class Content(msgspec.Struct, frozen=True):
    """The file. `written_t` is in seconds since the epoch: the time until a restart counts as time tried."""

    written_t: float
    waiting: list[Entry]


class QueueFile:
    """The file in `directory` (None: nothing is kept), written whole at each change; safe for threads.

    I/O errors are logged and the queue continues in memory. `now` gives a monotonic time in seconds, `wall` seconds since the epoch.
    """

    def __init__(
        self,
        directory: Path | None,
        try_for_s: float,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._try_for_s = try_for_s
        self._now, self._wall = now, wall
        self._lock = threading.Lock()
        self._logged = False
        self._waiting: dict[str, Sequence[Waiting]] = {}
        if directory is not None:
            leftovers.remove(directory / NAME)
        for robot, waiting in self._read():
            self._waiting[robot] = [*self._waiting.get(robot, ()), waiting]

    def pending(self, robot: str) -> Sequence[Waiting]:
        """Return what waits for a robot; `since` is in the present run's monotonic time, it may be long past."""
        with self._lock:
            return self._waiting.get(robot, ())

    def drop_unknown(self, robots: Sequence[str]) -> list[Message]:
        """Forget, and return, what waits for any other robot."""
        with self._lock:
            gone = [robot for robot in self._waiting if robot not in robots]
            found = [waiting.message for robot in gone for waiting in self._waiting.pop(robot)]
            if found:
                self._write()
            return found

    def keep(self, robot: str, waiting: Sequence[Waiting]) -> None:
        """Write what waits for a robot now, in place of what did; it is on the disk when this returns."""
        with self._lock:
            if list(self._waiting.get(robot, ())) != list(waiting):
                self._waiting[robot] = waiting
                self._write()

    def _write(self) -> None:
        if self._directory is None:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.replace(self._directory / NAME, self._encoded(), mode=0o600, durable=True)
            self._logged = False
        except OSError as error:
            if not self._logged:
                self._warn("what waits cannot be written, and is lost if this ends", error.strerror)
            self._logged = True

    def _encoded(self) -> bytes:
        now = self._now()
        entries = [
            Entry(robot, self._try_for_s - (now - found.since), found.message)
            for robot, waiting in self._waiting.items()
            for found in waiting
        ]
        return msgspec.json.encode(Content(self._wall(), entries))

    def _read(self) -> list[tuple[str, Waiting]]:
        if self._directory is None:
            return []
        try:
            content = msgspec.json.decode(user_file.read(self._directory / NAME), type=Content)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._warn("what waited cannot be read", error.strerror)
            return []
        except (ValueError, RecursionError):
            self._warn("what waited cannot be read", "the file is damaged")
            return []
        # A clock that was set back meanwhile says nothing of how long the bridge was away.
        away_s = max(0.0, self._wall() - content.written_t)
        now = self._now()
        return [
            (entry.robot, Waiting(now - self._try_for_s + min(entry.left_s, self._try_for_s) - away_s, entry.message))
            for entry in content.waiting
        ]  # fmt: skip

    def _warn(self, what: str, why: str | None) -> None:
        log.warning(what, extra={"fields": {"file": f"{self._directory}/{NAME}", "error": why}})
