"""Turn a template's panel into the JSON that Grafana expects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta

COLUMNS = 24
"""Columns of Grafana's grid."""
FIRST_ROW_ID = 1000
"""Rows are numbered from here on, panels below by the template."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Text = Annotated[str, Meta(min_length=1)]
Step = tuple[float | None, Text]
"""From this value on (None: from the lowest), this colour."""


class Column(msgspec.Struct, forbid_unknown_fields=True):
    """What a table's column has of its own."""

    unit: Text = "none"
    thresholds: list[Step] = []
    values: dict[str, tuple[Text, Text]] = {}


class Panel(msgspec.Struct, forbid_unknown_fields=True):
    """One picture; `queries` maps a legend, in a table a column's title, to PromQL."""

    id: Annotated[int, Meta(ge=1, lt=FIRST_ROW_ID)]
    title: Text
    description: Text
    unit: Text
    queries: Annotated[dict[str, Text], Meta(min_length=1)]
    type: Literal["timeseries", "stat", "state-timeline", "table"] = "timeseries"
    thresholds: list[Step] = []
    values: dict[str, tuple[Text, Text]] = {}
    """Text and colour for a value."""
    colours: dict[Text, Text] = {}
    """Colours of series, by a regular expression found in the legend; the last one found counts."""
    worst: Literal["max", "min"] = "max"
    """Whether a legend shows a series' largest or smallest value beside its last one."""
    alerts: list[Text] = []
    """Alerts whose condition is seen here: their dashboard_url leads to this panel, and the panel to their pages."""
    runbooks: list[Text] = []
    """Other alerts whose pages say what to do about what is seen here."""
    columns: dict[str, Column] = {}
    sort: list[Text] = []
    """Titles of columns that a table is sorted by, the largest first."""
    drill: str = ""
    """uid of the dashboard that a table's devices lead to."""
    min: float | None = None
    max: float | None = None
    interval: str = ""
    """Shortest step, where one point is to cover as much time as a rule's window does."""
    window_s: Annotated[int, Meta(ge=0)] = 0
    """Least $__rate_interval, where events are seconds apart; Grafana's is four times the shortest step."""
    stack: bool = False
    width: Annotated[int, Meta(ge=1, le=COLUMNS)] = 12
    height: Annotated[int, Meta(ge=2, le=40)] = 8

    def __post_init__(self) -> None:
        for title in (*self.columns, *self.sort):
            if title not in self.queries:
                raise ValueError(f"no query is titled {title!r}")
        for pattern in self.colours:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"colours: {pattern!r}: {error}") from error


def panel_model(panel: Panel, place: dict[str, int], runbooks: str, scrape_interval: str) -> dict[str, Any]:
    """Return the panel as Grafana has it, at its place in the grid; `runbooks` is the address of their folder, or empty."""
    shortest = f"{panel.window_s / 4:g}s" if panel.window_s else scrape_interval
    least_step = {"interval": shortest} if shortest else {}
    model: dict[str, Any] = {
        "id": panel.id,
        "type": panel.type,
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": SOURCE,
        "targets": [_target(panel, *item) | least_step for item in enumerate(panel.queries.items())],
        "fieldConfig": {"defaults": _field(panel), "overrides": list(_overrides(panel))},
        "options": _options(panel),
        "links": [
            {
                "title": f"Runbook: {name}",
                "url": f"{runbooks}/{quote(name)}.md",
                "targetBlank": True,
            }
            for name in dict.fromkeys([*panel.alerts, *panel.runbooks] if runbooks else [])
        ],
    }
    if panel.interval:
        model["interval"] = panel.interval
    if panel.type == "table":
        model["transformations"] = [
            {"id": "joinByField", "options": {"byField": "device", "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"pattern": "^(device|Value.*)$"}}},
        ]
    return model


def _target(panel: Panel, number: int, query: tuple[str, str]) -> dict[str, Any]:
    legend, expression = query
    table, once = panel.type == "table", panel.type in ("table", "stat")
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": " ".join(expression.split()),
        "legendFormat": legend,
        "format": "table" if table else "time_series",
        "instant": once,
        "range": not once,
    }


def _steps(steps: list[Step]) -> dict[str, Any]:
    base: list[Step] = [] if steps and steps[0][0] is None else [(None, "green")]
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in [*base, *steps]],
    }


def _mappings(values: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    options = {
        value: {"text": text, "color": colour, "index": number}
        for number, (value, (text, colour)) in enumerate(values.items())
    }
    return [{"type": "value", "options": options}] if options else []


def _field(panel: Panel) -> dict[str, Any]:
    field: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.type == "timeseries" else "thresholds"},
        "thresholds": _steps(panel.thresholds),
        "mappings": _mappings(panel.values),
        "custom": _custom(panel),
    }
    return field | {name: end for name, end in (("min", panel.min), ("max", panel.max)) if end is not None}


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.type == "timeseries":
        return {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stack else 0,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
        }
    return {"fillOpacity": 70, "lineWidth": 0} if panel.type == "state-timeline" else {}


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    """Give each column of a table, which Grafana names by its query, its title, unit and colours, and link the device."""
    for pattern, colour in panel.colours.items():
        fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
        yield {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [fixed]}
    if panel.type != "table":
        return
    for number, title in enumerate(panel.queries):
        column = panel.columns.get(title, Column())
        properties: list[dict[str, Any]] = [
            {"id": "displayName", "value": title},
            {"id": "unit", "value": column.unit},
        ]
        if column.thresholds or column.values:
            properties += [
                {"id": "thresholds", "value": _steps(column.thresholds)},
                {"id": "mappings", "value": _mappings(column.values)},
                {"id": "custom.cellOptions", "value": {"type": "color-text"}},
            ]
        name = f"Value #{chr(ord('A') + number)}" if len(panel.queries) > 1 else "Value"
        yield {"matcher": {"id": "byName", "options": name}, "properties": properties}
    device: list[dict[str, Any]] = [{"id": "displayName", "value": "Device"}]
    if panel.drill:
        url = f"/d/{panel.drill}?var-device=${{__value.text}}&${{__url_time_range}}"
        device.append({"id": "links", "value": [{"title": "Open", "url": url, "targetBlank": False}]})
    yield {"matcher": {"id": "byName", "options": "device"}, "properties": device}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.type == "timeseries":
        return {
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", panel.worst],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.type == "stat":
        return {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    if panel.type == "state-timeline":
        return {
            "mergeValues": True,
            "showValue": "auto",
            "rowHeight": 0.9,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single", "sort": "none"},
        }
    return {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": [], "fields": ""},
        "sortBy": [{"displayName": title, "desc": True} for title in panel.sort],
    }
