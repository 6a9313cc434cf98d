"""Read what the kernel and systemd say of the machine and of the model server; each reader is one file."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from omniwatch.settings import Settings
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)


class Reader(Protocol):
    """Families read from the machine at each scrape."""

    def collect(self) -> Iterable[Metric]:
        """Return what is there to read now; what the machine lacks is absent, not 0.

        Raises, after what can still be read, where the machine has what cannot be read.
        """


def discover(settings: Settings, root: Path = Path("/")) -> dict[str, Reader]:
    """Make the `Reader` of every module here that has one, by the module's name."""
    modules = {
        m.name: importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    }
    return {
        name: module.Reader(settings, root) for name, module in modules.items() if hasattr(module, "Reader")
    }


class Host:
    """All readers as one; each is timed, and one that fails is reported instead of failing the scrape."""

    def __init__(self, readers: dict[str, Reader], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._readers = readers
        self._monotonic = monotonic
        self._seldom = LogThrottle(monotonic)

    def collect(self) -> Iterator[Metric]:
        """Return the families of every reader, and how each of them fared."""
        up = GaugeMetricFamily(
            "omniwatch_host_reader_up",
            "Whether a reader of the machine's own signals worked.",
            labels=["reader"],
        )
        duration = GaugeMetricFamily(
            "omniwatch_host_reader_duration_seconds", "Time a reader took at this scrape.", labels=["reader"]
        )
        for name, reader in self._readers.items():
            began = self._monotonic()
            families: list[Metric] = []
            works = True
            try:
                for family in reader.collect():
                    families.append(family)
            except Exception as error:
                works = False
                if self._seldom(name):
                    log.warning(
                        "host reader failed", extra={"fields": {"reader": name, "error": repr(error)}}
                    )
            up.add_metric([name], float(works))
            duration.add_metric([name], self._monotonic() - began)
            yield from families
        yield up
        yield duration
