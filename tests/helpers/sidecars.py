"""A sidecar without its threads: clocks set by hand, an event file, what it shows."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from helpers.events import T0
from omniwatch import events as ev
from omniwatch.sidecar.loop import Sidecar
from omniwatch.tap.spool import Spool


class Times:
    """Both clocks, set by hand."""

    def __init__(self) -> None:
        self.wall = T0
        self.steady = 0.0


def value(sidecar: Sidecar, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(sidecar)
    return registry.get_sample_value(name, labels or None)


def write(path: Path, *events: ev.Event, writer: str = "w1") -> None:
    spool = Spool(path, writer=writer)
    for event in events:
        spool.write(event)
    spool.close()
