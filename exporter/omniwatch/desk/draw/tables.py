"""Lay out table panels: query results side by side, a row for each value of the label that joins them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omniwatch.desk.draw.fields import QueryResult, appearance, levels
from omniwatch.desk.draw.model import Cell, Grid, Level

TableRow = dict[str, Any]


def grid(panel: Mapping[str, Any], answers: Sequence[QueryResult]) -> Grid:
    """Return a table's heads and cells, as its transformations and overrides have them."""
    several = len(answers) > 1
    columns = [f"Value #{answer.question.ref}" if several else "Value" for answer in answers]
    rows = _joined(answers, columns, _option(panel, "joinByField", "byField"))
    names = list(dict.fromkeys(name for row in rows for name in row))
    # What no answer has is a column all the same, so that its absence is seen.
    names = [*(name for name in names if name not in columns), *columns]
    pattern = (_option(panel, "filterFieldsByName", "include") or {}).get("pattern", "")
    names = [name for name in names if name != "__name__" and re.search(pattern, name)]
    fields = {name: _Field(panel, name) for name in names}
    for order in reversed(panel.get("options", {}).get("sortBy", [])):
        named = next((name for name in names if fields[name].title == order["displayName"]), "")
        rows = _sorted(rows, named, bool(order.get("desc")))
    cells = [[fields[name].cell(row.get(name)) for name in names] for row in rows]
    return Grid([fields[name].title for name in names], cells)


def _joined(answers: Sequence[QueryResult], columns: Sequence[str], by: str | None) -> list[TableRow]:
    """Return the rows of all answers; those with the same value of the label `by` are one."""
    rows: dict[Any, TableRow] = {}
    for answer, column in zip(answers, columns, strict=True):
        for series in answer.series:
            key = series.labels.get(by, "") if by else (column, tuple(sorted(series.labels.items())))
            row = rows.setdefault(key, {})
            for label, value in series.labels.items():
                row.setdefault(label, value)
            row[column] = series.points[-1][1]
    return list(rows.values())


def _sorted(rows: Sequence[TableRow], name: str, down: bool) -> list[TableRow]:
    """Return rows by a column's values, those that have none at the end."""
    having = [row for row in rows if name in row]
    return sorted(having, key=lambda row: row[name], reverse=down) + [row for row in rows if name not in row]


def _option(panel: Mapping[str, Any], transformation: str, name: str) -> Any:
    for entry in panel.get("transformations", []):
        if entry["id"] == transformation:
            return entry["options"].get(name)
    return None


class _Field:
    """A column: the panel's defaults, overridden for its name."""

    def __init__(self, panel: Mapping[str, Any], name: str) -> None:
        config = panel.get("fieldConfig", {})
        properties: dict[str, Any] = dict(_overriding(config.get("overrides", []), name))
        defaults = config.get("defaults", {})
        self.title = properties.get("displayName", name)
        self._unit = properties.get("unit", defaults.get("unit", "none"))
        self._coloured = "custom.cellOptions" in properties
        self._levels: list[Level] = levels({"thresholds": properties.get("thresholds", {})})
        self._mappings = properties.get("mappings", defaults.get("mappings", []))

    def cell(self, value: str | float | None) -> Cell:
        """Return a value as it appears in this column."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return Cell("")
        if isinstance(value, str):
            return Cell(value)
        words, colour = appearance(value, self._levels, self._mappings, self._unit)
        return Cell(words, colour if self._coloured else "")


def _overriding(overrides: Sequence[Mapping[str, Any]], name: str) -> Iterator[tuple[str, Any]]:
    for override in overrides:
        matcher = override["matcher"]
        if matcher["id"] == "byName" and matcher["options"] == name:
            for entry in override["properties"]:
                yield entry["id"], entry["value"]
