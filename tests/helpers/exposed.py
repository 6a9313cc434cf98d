"""What an exposition says a query must return: an oracle that knows no PromQL engine, only what was exposed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from omniwatch.desk.promql import Selector, alternatives, selectors

Key = tuple[str, tuple[tuple[str, str], ...]]
SETTLED = 4
"""A series that was seen so often has points enough for a rate."""
TARGET = ("job", "device", "instance")
"""Labels that a scrape adds."""


class Exposed:
    """The pages of one device's jobs over a run."""

    def __init__(self) -> None:
        self.values: dict[Key, list[float]] = {}
        self.latest: set[Key] = set()

    def add(self, page: str) -> None:
        """Take another page: what it does not have is gone."""
        self.latest = set()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                self.put(sample.name, sample.labels, sample.value)

    def put(self, name: str, labels: dict[str, str], value: float) -> None:
        """Take one value more of the last page's time."""
        key = name, tuple(sorted(labels.items()))
        self.values.setdefault(key, []).append(value)
        self.latest.add(key)

    def replace(self, name: str, labels: dict[str, str], values: list[float]) -> None:
        """Take a series as somebody else saw it, whose looks were not at our moments."""
        self.values[name, tuple(sorted(labels.items()))] = values

    def of(self, selector: Selector, now: bool) -> list[list[float]]:
        """Return the values of each series that a selector asks for; where `now` is what counts, those it still has."""
        return [
            values
            for key, values in self.values.items()
            if key[0] == selector.metric
            and _chosen(dict(key[1]), selector.matchers)
            and (key in self.latest or not now or selector.window)
        ]


class Need(NamedTuple):
    """A part of a query without which the whole is empty."""

    selector: Selector
    grown: bool
    """Whether a counter must have counted something, too."""
    below_infinity: bool


def needs(query: str) -> Iterator[Need]:
    """Yield what a query cannot do without. Quantiles of nothing are NaN, and `> 0` filters what never happened."""
    filtered = " ".join(re.findall(r"\(((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*) > 0\)", query))
    if query.endswith(" > 0"):
        filtered = query
    must_grow = {(one.metric, str(one.matchers)) for one in selectors(filtered)} if filtered else set()
    for selector in selectors(query):
        grown = "histogram_quantile" in query or (selector.metric, str(selector.matchers)) in must_grow
        yield Need(selector, grown, "< Inf" in query)


def has_data(query: str, exposed: Exposed, instant: bool, looks: int = 1) -> bool:
    """Whether a query of one device must return something; an instant one, at the last page.

    A comparison must have held for so many `looks` running: one that held for a single look may fall between two steps.
    """
    return any(
        all(_met(need, exposed.of(need.selector, instant), part, looks) for need in needs(part))
        for part in alternatives(query)
    )


def _met(need: Need, series: Iterable[list[float]], query: str, looks: int) -> bool:
    found = [values for values in series if len(values) >= (SETTLED if need.selector.window else 1)]
    if need.grown:
        return any(values[-1] > values[0] for values in found)
    if need.below_infinity:
        return any(_held([value < math.inf for value in values], looks) for values in found)
    if query.endswith(" == 1"):
        return any(_held([value == 1 for value in values], looks) for values in found)
    return bool(found)


def _held(looked: list[bool], looks: int) -> bool:
    """Whether it was so, that many looks running."""
    return any(all(looked[at : at + looks]) for at in range(len(looked) - looks + 1))


def _chosen(labels: dict[str, str], matchers: dict[str, str]) -> bool:
    for label, matcher in matchers.items():
        sign, pattern = re.fullmatch(r'(=~|!~|!=|=)"(.*)"', matcher, re.DOTALL).groups()
        if label in TARGET and label not in labels:
            continue
        value = labels.get(label, "")
        same = re.fullmatch(pattern, value) is not None if "~" in sign else value == pattern
        if same != (sign in ("=", "=~")):
            return False
    return True
