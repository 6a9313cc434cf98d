"""One scrape: the families of a view, as prometheus_client's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from omniwatch.core.totals import Totals
from omniwatch.metrics.family import HistogramFamily
from omniwatch.metrics.sidecar_metrics import OWN_FAMILIES
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.metrics.stream_metrics import FAMILIES, HISTOGRAMS


def collect(view: ScrapeSnapshot) -> Iterator[Metric]:
    """Return the families of one scrape."""
    for family in (*FAMILIES, *OWN_FAMILIES):
        metric = Metric(family.name, family.help, family.kind)
        sample = family.name + "_total" if family.kind == "counter" else family.name
        for values, value in family.rows(view):
            metric.add_sample(sample, dict(zip(family.labels, values, strict=True)), value)
        yield metric
    for histogram in HISTOGRAMS:
        yield _histogram(histogram, view.totals)


def _histogram(family: HistogramFamily, totals: Totals) -> Metric:
    metric = Metric(family.name, family.help, "histogram")
    bounds = [*map(floatToGoString, family.edges(totals)), "+Inf"]
    for values, histogram in family.rows(totals):
        labels = dict(zip(family.labels, values, strict=True))
        below = 0
        for bound, count in zip(bounds, histogram.counts, strict=True):
            below += count
            metric.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, below)
        metric.add_sample(f"{family.name}_count", labels, below)
        metric.add_sample(f"{family.name}_sum", labels, histogram.sum)
    return metric
