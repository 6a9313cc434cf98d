"""What Prometheus would have scraped of a cell's days, and what its rules would have made of it.

All comes from the sidecar's own stream table, and the rules are asked of a real Prometheus, as `omniwatch backtest` does. What makes
days of it quick:

- Only series are written that a rule asks for.
- Scrapes are as far apart as evaluations. Evaluations and windows are whole multiples of that, so what a rule sees at an evaluation,
  and what a counter grew by in a window, is the same. Rules that look at a gauge over a time would be an exception: with one, all is
  scraped as often as the settings say.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

from helpers.noise.turns import T0
from omniwatch.core.streams import StreamTable
from omniwatch.desk.backtest import rule_sets, site
from omniwatch.desk.backtest.notifications import Notification
from omniwatch.desk.backtest.rules import RuleSet, Standing, asked, matches, metric, seconds, speech_names
from omniwatch.desk.backtest.run import Side, Verdict, judge, sent_messages
from omniwatch.desk.backtest.scrapes import Page
from omniwatch.desk.backtest.tsdb import Tsdb
from omniwatch.events import EV_OF, Event
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.family import Family, HistogramFamily
from omniwatch.metrics.sidecar_metrics import OWN_FAMILIES
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.metrics.stream_metrics import FAMILIES, HISTOGRAMS
from omniwatch.settings import Settings

HELD = (
    speech_names()
    | {family.name + ("_total" if family.kind == "counter" else "") for family in OWN_FAMILIES}
    | {"up"}
)
"""What the model has series of."""
LEAD_S = 60
"""Scraped before the first event, so that every counter is seen to start from 0."""


class Outcome(NamedTuple):
    """What came of devices: each rule's alerts, and what was sent."""

    verdicts: list[Verdict]
    sent: list[Notification]

    def of(self, device: str) -> Outcome:
        """Return the same of one device."""
        mine = ("device", device)
        verdicts = [
            one._replace(alerts=[alert for alert in one.alerts if mine in alert.labels])
            for one in self.verdicts
        ]
        return Outcome(verdicts, [one for one in self.sent if mine in one.group])

    def first_page(self) -> tuple[float, str] | None:
        """Return when somebody was called first, and by which alerts; None where nobody was."""
        for one in self.sent:
            if one.receiver == "page":
                return one.t, ", ".join(sorted({dict(labels)["alertname"] for labels in one.firing}))
        return None


class _Source:
    """A source that is up and read to its end."""

    up, error, absent, caught_up = True, None, False, True
    invalid: dict[str, int] = {}  # noqa: RUF012
    bytes_behind, free_bytes, rotations, truncations = 0, 2**26, 0, 0

    def __init__(self, name: str) -> None:
        self.name = name


class Model:
    """The rules of a site, and what they ask for."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        self.side: Side = rule_sets.side("noise", settings, site.rendered(settings, directory / "bundle"))
        rules = self._rules = RuleSet(self.side.rules, HELD, self.side.targets)
        judged = [rule for rule in rules.alerts if rules.standing(rule)[0] is Standing.JUDGED]
        needed = [below for rule in judged for below in rules.needed(rule)]
        self._asked = [selector for rule in (*judged, *needed) for selector in asked(rule)]
        alerts = settings.alerts
        self.step_s = alerts.evaluation_interval_s if self._is_coarse_exact() else alerts.scrape_interval_s

    def _is_coarse_exact(self) -> bool:
        gauges = {family.name for family in FAMILIES if family.kind == "gauge"}
        every_s = self.settings.alerts.evaluation_interval_s
        return not any(
            selector.window and (metric(selector) in gauges or seconds(selector.window) % every_s)
            for selector in self._asked
        )

    def standings(self) -> dict[str, Standing]:
        """Return of each page and ticket whether the model can tell of it."""
        return {
            rule.name: self._rules.standing(rule)[0]
            for rule in self._rules.alerts
            if rule.severity in ("page", "ticket")
        }

    def wants(self, name: str, labels: dict[str, str] | None = None) -> bool:
        """Whether a rule asks for a series of the sidecar, or for any of its name."""
        whole = None if labels is None else {**labels, **self.side.targets[0]}
        return any(
            metric(selector) in (name, "")
            and all(
                matches(matcher, name if label == "__name__" else whole.get(label, ""))
                for label, matcher in selector.matchers.items()
                if label == "__name__" or whole is not None
            )
            for selector in self._asked
        )

    def run(self, devices: Mapping[str, Iterable[Event]], end_t: float) -> Outcome:
        """Return what rules and Alertmanager make of devices from T0 to `end_t`."""
        with tempfile.TemporaryDirectory(dir=self.directory) as place:
            tsdb = Tsdb(Path(place), self.step_s, self.settings.alerts.evaluation_interval_s)
            start_t = T0 - LEAD_S
            tsdb.fill(self._scrapes(devices, start_t, end_t))
            verdicts = judge(self.side, HELD, tsdb, (start_t, end_t), self.step_s)
        refused = [one for one in verdicts if one.error]
        assert not refused, refused
        return Outcome(verdicts, sent_messages(self.side.routing, verdicts, end_t))

    def _scrapes(
        self, devices: Mapping[str, Iterable[Event]], start_t: float, end_t: float
    ) -> Iterator[tuple[float, str]]:
        watched = [_Device(self, name, events) for name, events in devices.items()]
        t = start_t
        while t <= end_t:
            yield t, "".join([one.scrape(t) for one in watched])
            t += self.step_s


class _Device:
    """The scrapes of one device."""

    def __init__(self, model: Model, device: str, events: Iterable[Event]) -> None:
        self._model, self._events = model, iter(events)
        own, *others = (
            {**target, "device": device, "instance": f"{device}-{target['instance']}"}
            for target in model.side.targets
        )
        self._table = StreamTable(model.settings)
        self._intake = Intake(_Source(model.settings.sources[0]))
        self._page = Page(own)
        self._others = [Page(target) for target in others]
        self._next: Event | None = next(self._events, None)
        self._families = [family for family in (*FAMILIES, *OWN_FAMILIES) if model.wants(_sample(family))]
        self._histograms = [
            family
            for family in HISTOGRAMS
            if any(model.wants(family.name + part) for part in ("_bucket", "_count", "_sum"))
        ]
        self._heads: dict[tuple[str, tuple[str, ...]], str | None] = {}

    def scrape(self, t: float) -> str:
        """Return the lines of all that is scraped of the device at t."""
        self._read(t)
        return self._lines(t)

    def _read(self, t: float) -> None:
        counts, batch = self._intake.counts, []
        while self._next is not None and self._next.t <= t:
            batch.append(self._next)
            counts.events[EV_OF[type(self._next)]] += 1
            self._next = next(self._events, None)
        if batch:
            self._table.apply_all(batch, self._intake.name)
            counts.last_t = batch[-1].t
        self._table.advance(t)

    def _lines(self, t: float) -> str:
        view = ScrapeSnapshot(t, self._table, [self._intake], reload_t=T0)
        lines = [self._page.up(t), *(page.up(t) for page in self._others)]
        for family in self._families:
            name = _sample(family)
            for values, value in family.rows(view):
                self._add(lines, name, family.labels, values, value, t)
        for histogram in self._histograms:
            self._add_histogram(lines, histogram, t)
        return "".join(lines)

    def _add_histogram(self, lines: list[str], family: HistogramFamily, t: float) -> None:
        bounds = [*map(floatToGoString, family.edges(self._table.totals)), "+Inf"]
        for values, histogram in family.rows(self._table.totals):
            below = list(accumulate(histogram.counts))
            for bound, count in zip(bounds, below, strict=True):
                self._add(lines, f"{family.name}_bucket", (*family.labels, "le"), (*values, bound), count, t)
            self._add(lines, f"{family.name}_count", family.labels, values, below[-1], t)
            self._add(lines, f"{family.name}_sum", family.labels, values, histogram.sum, t)

    def _add(
        self,
        lines: list[str],
        name: str,
        labels: tuple[str, ...],
        values: tuple[str, ...],
        value: float,
        t: float,
    ) -> None:
        key = (name, values)
        if key not in self._heads:
            named = dict(zip(labels, values, strict=True))
            self._heads[key] = self._page.head(name, named) if self._model.wants(name, named) else None
        head = self._heads[key]
        if head is not None:
            lines.append(f"{head} {floatToGoString(value)} {t}\n")


def _sample(family: Family) -> str:
    return family.name + ("_total" if family.kind == "counter" else "")
