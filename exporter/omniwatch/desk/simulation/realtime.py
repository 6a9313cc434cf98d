"""Release events when they are due, as a live server writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from omniwatch.events import Event


def paced(
    events: Iterable[Event],
    speed: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Yield each event at its time, `speed` times as fast as it happened; at once where speed is 0.

    Deadlines count from the first event, so that lateness does not add up: after a hold-up, events come at once
    until the clock is caught up with.
    """
    begun: float | None = None
    for event in events:
        if speed > 0:
            if begun is None:
                begun, first_t = monotonic(), event.t
            early_s = begun + (event.t - first_t) / speed - monotonic()
            if early_s > 0:
                sleep(early_s)
        yield event
