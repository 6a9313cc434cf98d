"""How a metric family is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from omniwatch.core.totals import Histogram, Totals
from omniwatch.metrics.snapshot import ScrapeSnapshot

LabelledValue = tuple[tuple[str, ...], float]


class Family(NamedTuple):
    """A gauge or counter: its name (a counter's without `_total`), help, labels and rows of label values and value."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[ScrapeSnapshot], Iterable[LabelledValue]]


class HistogramFamily(NamedTuple):
    """A histogram in seconds: its edges and, per label value, its counts."""

    name: str
    help: str
    labels: tuple[str, ...]
    edges: Callable[[Totals], tuple[float, ...]]
    rows: Callable[[Totals], Iterable[tuple[tuple[str, ...], Histogram]]]
