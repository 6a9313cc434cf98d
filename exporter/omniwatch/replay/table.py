"""Follow a recording with the sidecar's own stream table: time passes by its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omniwatch import events
from omniwatch.core.record import NEVER
from omniwatch.core.samples import Sample, Samples
from omniwatch.core.streams import StreamTable
from omniwatch.core.turns import Judged
from omniwatch.settings import Settings

STEP_S = 1.0
"""Seconds of the recording after which time passes for the table."""
AFTER_S = 3600.0
"""Seconds that pass after the last event: all that was sent has been heard by then."""


class RecordedTable(StreamTable):
    """A stream table without a clock. Call `finish` after the last event."""

    def __init__(
        self, settings: Settings, found: Callable[[Judged], None], samples: Iterable[Sample] = ()
    ) -> None:
        """`found` takes each turn that was judged, good or bad; `samples` are the device's of that time."""
        super().__init__(settings)
        self.turns.found = found
        self.turns.samples = Samples(samples, most=None)
        self.first_t = NEVER
        """Time of the recording's first event; NEVER before it."""
        self.now = self._advanced_t = 0.0

    def apply_all(self, batch: Iterable[events.Event], source: str = "") -> None:
        """Take events in their order."""
        for event in batch:
            if self.first_t == NEVER:
                self.first_t = event.t
            if abs(event.t - self._advanced_t) >= STEP_S:
                self.advance(event.t)
                self._advanced_t = event.t
            super().apply_all((event,), source)
            self.now = event.t

    def finish(self) -> None:
        """Judge the turns that had ended when the recording did."""
        self.advance(self.now + AFTER_S)
