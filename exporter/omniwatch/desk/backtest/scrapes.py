"""Scrape a recording in event time: the real sidecar's pages, as OpenMetrics lines with timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil

from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

from omniwatch.desk.backtest.recording_source import Moments
from omniwatch.ingest.intake import Counts
from omniwatch.settings import Settings
from omniwatch.sidecar.loop import Sidecar

END = "# EOF\n"
"""The last line of an OpenMetrics text."""
_number: Callable[[float], str] = floatToGoString


class Scrapes:
    """What Prometheus gets from a sidecar that reads a recording as it is written.

    `targets` are the labels of each scrape, the sidecar's first; all are taken to be up. Scrapes are at whole multiples of the settings'
    interval, from one evaluation before the first event on, so that every counter is seen to start from 0, to the last event.
    """

    def __init__(self, moments: Moments, settings: Settings, targets: Sequence[Mapping[str, str]]) -> None:
        self.names: frozenset[str] = frozenset()
        """The series of the first page, which has every family that an event file can fill."""
        self._moments = moments
        self._now = 0.0
        self._sidecar = Sidecar(settings, [moments], clock=self._clock, monotonic=self._clock)
        self._page = Page(targets[0])
        self._others = [Page(target) for target in targets[1:]]
        self._step = settings.alerts.scrape_interval_s
        lead = ceil(settings.alerts.evaluation_interval_s / self._step)
        first = ceil((moments.first_t or 0.0) / self._step) - lead
        self.start_t = self.end_t = max(first, 0) * self._step
        """The first scrape and, at the end, the last."""

    def _clock(self) -> float:
        return self._now

    @property
    def counts(self) -> Counts:
        """What was read so far, by kind."""
        return self._sidecar.intakes[0].counts

    @property
    def lost(self) -> int:
        """Events that were numbered and are not in the recording."""
        return self._sidecar.intakes[0].sequence.lost

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield time and lines of each scrape, in order. Raises BacktestError, SourceError."""
        t = self.start_t
        while True:
            self._now = self._moments.until = t
            self._read()
            if self._moments.ended and self._moments.last_t < t and t > self.start_t:
                return
            families = list(self._sidecar.collect())
            if not self.names:
                self.names = frozenset(sample.name for family in families for sample in family.samples)
            self.end_t = t
            yield t, "".join([page.up(t) for page in self._others]) + self._page.lines(families, t)
            t += self._step

    def _read(self) -> None:
        """Let the sidecar read all whose time has come."""
        busy = True
        while busy:
            # A recording may begin anywhere in a writer's numbers: those before its first line are not lost.
            self._sidecar.intakes[0].sequence.settled = False
            busy = self._sidecar.step()


class Page:
    """Writes scrapes as lines of an OpenMetrics text, under a target's labels."""

    def __init__(self, target: Mapping[str, str]) -> None:
        self._target = target
        self._heads: dict[tuple[object, ...], str] = {}

    def lines(self, families: Iterable[Metric], t: float) -> str:
        """Return a scrape's lines, `up` first."""
        lines = [self.up(t)]
        for family in families:
            lines += [self.line(name, labels, value, t) for name, labels, value, *_ in family.samples]
        return "".join(lines)

    def up(self, t: float) -> str:
        """Return the sample of a scrape that came to something."""
        return self.line("up", {}, 1.0, t)

    def line(self, name: str, labels: Mapping[str, str], value: float, t: float) -> str:
        """Return one sample."""
        return f"{self.head(name, labels)} {_number(value)} {t}\n"

    def head(self, name: str, labels: Mapping[str, str]) -> str:
        """Return a series as it is written; the target's labels win, as without honor_labels."""
        key = (name, *labels.items())
        head = self._heads.get(key)
        if head is None:
            all_labels = {**labels, **self._target}
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in all_labels.items())
            head = self._heads[key] = f"{name}{{{pairs}}}"
        return head


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
