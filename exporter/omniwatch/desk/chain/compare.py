"""Compare two results: how far apart they are, and whether that is shown. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from omniwatch.desk.chain import Result
from omniwatch.desk.chain.figures import QUANTITIES, Cell, Quantity, cells
from omniwatch.desk.chain.statistics import (
    FEWEST_TO_COMPARE,
    PERCENTILES,
    Estimate,
    estimate,
    median_difference,
)
from omniwatch.desk.chain.statistics import share_interval as interval_of

DIFFERENT, NOT_SHOWN = "different", "not shown to be"


class Difference(NamedTuple):
    """One figure of both. `low` and `high` hold the difference of medians; None for other percentiles."""

    column: str
    figure: str
    first: Estimate
    second: Estimate
    low: float | None
    high: float | None
    verdict: str


def compare(first: Result, second: Result, seed: int = 1) -> Iterator[Difference]:
    """Compare each column that both have; where each result has one chain only, and not the same, those.

    Medians are different if the bootstrap's interval of their difference leaves out 0. Other percentiles are different if
    their intervals do not overlap, which is careful: some that differ are not shown to.
    """
    for column, one, other in _columns(first, second):
        yield _failures(column, one, other)
        for quantity in QUANTITIES:
            a, b = one.values(quantity), other.values(quantity)
            if a and b:
                for percent in PERCENTILES:
                    yield _difference(column, quantity, percent, a, b, seed)


def _columns(first: Result, second: Result) -> Iterator[tuple[str, Cell, Cell]]:
    ours, theirs = cells(first), cells(second)
    one_chain = all(len({cell.chain for cell in side}) == 1 for side in (ours, theirs))
    for cell in ours:
        for other in theirs:
            if cell.concurrency == other.concurrency and (cell.chain == other.chain or one_chain):
                chain = cell.chain if cell.chain == other.chain else f"{cell.chain}/{other.chain}"
                yield f"{chain} x{cell.concurrency}", cell, other


def _failures(column: str, one: Cell, other: Cell) -> Difference:
    found = []
    for cell in (one, other):
        n = len(cell.turns)
        found.append(Estimate(n, cell.failed / n, *interval_of(cell.failed, n)))
    return Difference(column, "share of turns failed", found[0], found[1], None, None, _apart(*found))


def _difference(
    column: str, quantity: Quantity, percent: int, a: list[float], b: list[float], seed: int
) -> Difference:
    one, other = estimate(a, percent), estimate(b, percent)
    name = f"{quantity.words} P{percent}"
    if percent == 50 and all(map(math.isfinite, a + b)):
        found = median_difference(a, b, seed)
        if found.low is None or found.high is None:
            verdict = f"too few turns (fewer than {FEWEST_TO_COMPARE})"
        else:
            verdict = NOT_SHOWN if found.low <= 0 <= found.high else DIFFERENT
        return Difference(column, name, one, other, found.low, found.high, verdict)
    return Difference(column, name, one, other, None, None, _apart(one, other))


def _apart(one: Estimate, other: Estimate) -> str:
    if one.value is None or other.value is None:
        return "too few turns"
    for lower, upper in ((one, other), (other, one)):
        if lower.high is not None and upper.low is not None and lower.high < upper.low:
            return DIFFERENT
    return NOT_SHOWN


def table(found: list[Difference], names: tuple[str, str]) -> list[list[str]]:
    """Return the comparison's table, its columns' names first."""
    from omniwatch.desk.chain.tables import seconds

    def shown(estimated: Estimate) -> str:
        if estimated.value is None:
            return "-"
        ends = ["..." if e is None else seconds(e) for e in (estimated.low, estimated.high)]
        return f"{seconds(estimated.value)} [{ends[0]}, {ends[1]}]"

    rows = [["column", "figure", *names, "difference", "verdict"]]
    for one in found:
        if one.first.value is None and one.second.value is None:
            continue
        apart = "-"
        if one.low is not None and one.high is not None:
            apart = f"[{one.low:+.3f}, {one.high:+.3f}]"
        rows.append([one.column, one.figure, shown(one.first), shown(one.second), apart, one.verdict])
    return rows


def plain(one: Difference) -> dict[str, Any]:
    """Return a difference for programs; "never" for a percentile among turns that never spoke."""

    def finite(value: float | None) -> float | str | None:
        return "never" if value is not None and math.isinf(value) else value

    def side(estimated: Estimate) -> dict[str, Any]:
        return {name: finite(value) for name, value in estimated._asdict().items()}

    return {**one._asdict(), "first": side(one.first), "second": side(one.second)}
