"""Read a dashboard's JSON: its panels, and its queries with values in the place of Grafana's variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Model = dict[str, Any]


def panels(model: Model) -> list[Model]:
    """Return the panels that show something, those of collapsed rows included."""
    found: list[Model] = []
    for panel in model.get("panels", []):
        found += panel.get("panels", []) if panel.get("type") == "row" else [panel]
    return found


def panel_name(panel: Model) -> str:
    """Name a panel by its id, as messages do."""
    return f"panel {panel.get('id')}"


def queries(model: Model) -> Iterator[tuple[str, str]]:
    """Yield each panel's queries, with their place: "panel 3 A"."""
    for panel in panels(model):
        for target in panel.get("targets", []):
            yield f"{panel_name(panel)} {target.get('refId', '')}".strip(), str(target.get("expr", ""))


def filled(query: str, values: dict[str, str] | None = None) -> str:
    """Put a value in the place of each of Grafana's variables: some window, and anything for what is chosen."""
    known = {"__rate_interval": "5m", "__range": "1h", "__interval": "15s"} | (values or {})
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: known.get(found[1] or found[2], ".+"), query)


def as_rules(models: dict[str, Model]) -> Model:
    """Return every query as a recording rule named after its place, for a tool that knows all of PromQL."""
    rules = []
    for uid, model in sorted(models.items()):
        for place, query in queries(model):
            record = re.sub(r"\W+", "_", f"{uid}:{place}")
            rules.append({"record": record.replace("_", ":", 1), "expr": filled(query)})
    return {"groups": [{"name": "dashboards", "rules": rules}]}
