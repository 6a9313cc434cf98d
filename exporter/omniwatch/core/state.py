"""All that a stream table remembers; plain data, so that a checkpoint can keep it."""

from __future__ import annotations

from dataclasses import dataclass, field

from omniwatch.core.stream import Stream
from omniwatch.core.totals import Totals


@dataclass(slots=True)
class State:
    """The live streams by their id, and the totals over all that ever were."""

    totals: Totals
    streams: dict[str, Stream] = field(default_factory=dict)
    ear_up: bool | None = None
    """Whether the server's kernel was heard from when it last should have been; None where nothing ever asked it."""
