"""Queue events for the spool: enqueueing takes microseconds, and a thread of its own writes them."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from omniwatch.events import Event
from omniwatch.system.log import LogThrottle
from omniwatch.tap.spool import MAX_BYTES, Spool

logger = logging.getLogger("omniwatch.tap")
DEFAULT_PATH = "/run/omniwatch/events.jsonl"
QUEUE_EVENTS = 8192
"""Over a minute of eight live streams; beyond it events are dropped, not kept."""
BATCH_S = 0.02
"""How long the thread lets events gather before it takes the interpreter from the server again."""


class EventWriter:
    """The event file of this process, `put` to from one thread, and `offer`ed what can be left out from any.

    The thread, the queue and the writer's id are made at the first event, and made anew in a process that was forked
    off. An event that finds the queue full, or that cannot be written, is dropped; its number is used up, so that the
    reader counts it as lost.
    """

    def __init__(self, path: Path, max_bytes: int, queue_events: int = QUEUE_EVENTS) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._queue_events = queue_events
        self._seldom = LogThrottle(time.monotonic)
        self._pid = 0
        self._overflow = 0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> EventWriter:
        """The writer that the environment names: OMNIWATCH_EVENTS, OMNIWATCH_EVENTS_MAX_BYTES."""
        path = Path(environ.get("OMNIWATCH_EVENTS") or DEFAULT_PATH)
        return cls(path, _size(environ.get("OMNIWATCH_EVENTS_MAX_BYTES") or str(MAX_BYTES)))

    def put(self, event: Event) -> None:
        """Hand over an event; never waits."""
        if self._pid != os.getpid() and not self._begin():
            return
        if self._queue.qsize() >= self._queue_events:
            self._overflow += 1
            if self._seldom("full"):
                logger.warning("the writer of %s does not keep up: events are dropped", self.path)
            return
        self._queue.put((self._overflow, event))
        self._overflow = 0

    def offer(self, event: Event) -> None:
        """Hand over an event from any thread, once this process has put one; it is left out where the queue is full."""
        if self._pid == os.getpid() and self._queue.qsize() < self._queue_events:
            self._queue.put((0, event))

    def close(self, timeout_s: float) -> None:
        """Write what is left, for so long at most; a later event begins anew."""
        if self._pid == os.getpid():
            self._pid = 0
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _begin(self) -> bool:
        if self._pid:
            # Forked off: what the other process dropped is its own to count.
            self._overflow = 0
        waiting: queue.SimpleQueue[tuple[int, Event] | None] = queue.SimpleQueue()
        spool = Spool(self.path, max_bytes=self._max_bytes)
        thread = threading.Thread(target=self._run, args=(waiting, spool), name="omniwatch-tap", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._overflow += 1
            if self._seldom("thread"):
                logger.warning("no thread to write %s: %s: events are dropped", self.path, error)
            return False
        self._queue, self._thread, self._pid = waiting, thread, os.getpid()
        return True

    def _run(self, waiting: queue.SimpleQueue[tuple[int, Event] | None], spool: Spool) -> None:
        while (item := waiting.get()) is not None:
            skipped, event = item
            spool.skip(skipped)
            try:
                spool.write(event)
            except Exception as error:
                if self._seldom("write"):
                    logger.warning(
                        "%s: %s: events are dropped", self.path, getattr(error, "strerror", None) or error
                    )
            if waiting.empty():
                time.sleep(BATCH_S)
        spool.close()


def _size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = 0
    if size <= 0:
        logger.warning(
            "OMNIWATCH_EVENTS_MAX_BYTES: expected a number of bytes > 0, got %r; using %d", text, MAX_BYTES
        )
        return MAX_BYTES
    return size
