"""Choose how a value is shown: its legend, its text, its colour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from omniwatch.desk.draw.model import Level
from omniwatch.desk.draw.prometheus import Series
from omniwatch.desk.draw.queries import Query
from omniwatch.desk.draw.units import text

BASE = Level(None, "green")


class QueryResult(NamedTuple):
    """A panel's query and the series that it returned."""

    question: Query
    series: Sequence[Series]


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Put label values in the place of {{label}}; a label that is not there leaves nothing."""
    if not pattern:
        rest = ", ".join(
            f'{label}="{value}"' for label, value in sorted(labels.items()) if label != "__name__"
        )
        return f"{labels.get('__name__', '')}{{{rest}}}"
    return re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda found: labels.get(found[1], ""), pattern).strip()


def appearance(
    value: float, levels: Sequence[Level], mappings: Sequence[Mapping[str, Any]], unit: str
) -> tuple[str, str]:
    """Return a value's text and colour: what it is mapped to, else the number and the level it has reached."""
    colour = next(
        (level.colour for level in reversed(levels) if level.value is None or value >= level.value), ""
    )
    for mapping in mappings:
        entry = mapping["options"].get(f"{value:g}") if mapping["type"] == "value" else None
        if entry:
            return entry.get("text") or text(value, unit), entry.get("color") or colour
    return text(value, unit), colour


def levels(field: Mapping[str, Any]) -> list[Level]:
    """Return a field's thresholds, the lowest first."""
    steps = field.get("thresholds", {}).get("steps", [])
    return [Level(step["value"], step["color"]) for step in steps] or [BASE]
