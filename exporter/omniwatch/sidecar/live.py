"""The sidecar's part in the live page: sample each second, keep the history over a restart, build the feed once a second."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from math import ceil
from pathlib import Path

import msgspec
from prometheus_client.core import Metric

from omniwatch.live.device import Device
from omniwatch.live.feed import Feed, samples
from omniwatch.live.history import History, Kept
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.settings import Settings
from omniwatch.sidecar import checkpoint
from omniwatch.system import leftovers
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)

NAME = "history"
KEEP_S = 60.0
"""The file is written at most so often."""
PACKING = 1
"""Level of zlib: most of a history is gaps."""


class Live:
    """History and feed. `lock` is that of the stream table; `file` is where the history is kept, None: nowhere."""

    def __init__(
        self,
        settings: Settings,
        file: Path | None,
        lock: AbstractContextManager[object],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.history = History(settings.alerts)
        self._file, self._lock, self._clock, self._monotonic = file, lock, clock, monotonic
        self._seldom = LogThrottle(monotonic)
        self._device = Device()
        self._build_lock = threading.Lock()
        self._built_number, self._built_t = -2, 0.0
        self._due: Kept | None = None
        if file is not None:
            leftovers.remove(file)
            self._restore(file)
        self._began_t = self._next_keep = monotonic()
        gone_s = clock() - self.history.t if self.history.number >= 0 else 1.0
        self._before = self.history.number + max(1, ceil(gone_s))
        self.feed = Feed(settings, self.history, int(clock() * 1000))

    def _restore(self, file: Path) -> None:
        try:
            payload = checkpoint.load(file)
            if payload is not None:
                kept = msgspec.msgpack.decode(zlib.decompress(payload), type=Kept)
                self.history.restore(kept, self._clock())
        except (OSError, ValueError, zlib.error, checkpoint.CheckpointError) as error:
            fields = {"file": str(file), "error": str(error)}
            log.warning("history cannot be read, it begins anew", extra={"fields": fields})

    def clock_set(self, by_s: float) -> None:
        """Take that the wall clock was set, under the table's lock."""
        self.history.clock_set(by_s)
        self.feed.clock_set()

    def sample(self, view: Callable[[], ScrapeSnapshot]) -> None:
        """Take a sample if a second is over, under the table's lock. It moves no count."""
        steady = self._monotonic()
        number = self._before + int(steady - self._began_t)
        if number > self.history.number:
            seen = view()
            self.history.add(number, seen.now - (steady - self._began_t) % 1, samples(seen))
            if self._file and self.history.changed and steady >= self._next_keep:
                self.due()

    def due(self) -> None:
        """Have what is known now written by `keep`, under the table's lock."""
        if self._file is not None and self.history.changed:
            self._due, self.history.changed = self.history.kept(), False
            self._next_keep = self._monotonic() + KEEP_S

    def keep(self) -> None:
        """Write what is due, without the table's lock: a disk that is full or slow costs the history, and no scrape."""
        kept, self._due = self._due, None
        if kept is None or self._file is None:
            return
        try:
            checkpoint.save(self._file, zlib.compress(msgspec.msgpack.encode(kept), PACKING))
        except OSError as error:
            if self._seldom(NAME):
                fields = {"file": str(self._file), "error": str(error)}
                log.warning("history not written", extra={"fields": fields})

    def answer(
        self,
        cursor: str,
        packed: bool,
        view: Callable[[], ScrapeSnapshot],
        machine: Callable[[], Iterable[Metric]],
    ) -> bytes:
        """Return the feed since `cursor`, built anew where a second is over. For any thread, without the table's lock."""
        with self._build_lock:
            steady = self._monotonic()
            if self._built_number != self.history.number or not 0 <= steady - self._built_t < 1:
                self._device.take(machine())
                with self._lock:
                    self.feed.build(view(), self._device.shown())
                    self._built_number, self._built_t = self.history.number, steady
            return self.feed.answer(cursor, packed)
