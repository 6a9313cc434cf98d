"""Dashboards: compact YAML, expanded to the JSON that Grafana loads. Same YAML, same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import yaml
from msgspec import Meta

from omniwatch.bundle.panels import COLUMNS, FIRST_ROW_ID, SOURCE, Panel, Text, panel_model
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.system.errors import UserError

FOLDER = "dashboards"
SUFFIX = ".yaml.j2"
SCHEMA_VERSION = 39
"""Of Grafana 10 and 11; later versions migrate it when they load it."""


class DashboardError(UserError):
    """A dashboard's YAML does not hold."""


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """Panels under one heading, laid out from left to right."""

    title: Text
    panels: Annotated[list[Panel], Meta(min_length=1)]


class Variable(msgspec.Struct, forbid_unknown_fields=True):
    """A choice of label values; all of them by default."""

    label: Text
    query: Text


class Annotation(msgspec.Struct, forbid_unknown_fields=True):
    """Marks on every panel while a query returns something."""

    query: Text
    title: Text
    colour: Text
    tags: list[Text] = []


class Dashboard(msgspec.Struct, forbid_unknown_fields=True):
    """One template, rendered."""

    uid: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$")]
    title: Text
    description: Text
    runbook_base_url: str
    variables: dict[str, Variable]
    annotations: dict[str, Annotation]
    rows: Annotated[list[Row], Meta(min_length=1)]
    span: Text = "now-30m"
    refresh: Text = "10s"
    scrape_interval: str = ""
    """Of what is shown, where it is longer than the data source's own: $__rate_interval is made from it."""


class Place(NamedTuple):
    """A panel of a dashboard."""

    uid: str
    panel: int


def expand(text: str, name: str) -> str:
    """Turn a rendered template into Grafana's JSON. Raises DashboardError with `name` in it."""
    return written(parse(text, name))


def parse(text: str, name: str) -> Dashboard:
    """Read a rendered template. Raises DashboardError with `name` in it."""
    try:
        dashboard = msgspec.convert(load_yaml(text), Dashboard)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DashboardError(f"{name}: {' '.join(str(error).split())}") from error
    ids = [panel.id for row in dashboard.rows for panel in row.panels]
    twice = sorted({number for number in ids if ids.count(number) > 1})
    if twice:
        raise DashboardError(f"{name}: panel id {twice[0]} is there twice")
    return dashboard


def places(found: Mapping[str, Dashboard]) -> dict[str, Place]:
    """Return the panel that shows each alert, from dashboards by their names. Raises DashboardError for a second one."""
    known: dict[str, Place] = {}
    for name, dashboard in found.items():
        for panel in (panel for row in dashboard.rows for panel in row.panels):
            for alert in panel.alerts:
                if alert in known:
                    raise DashboardError(
                        f"{name}: panel {panel.id}: {alert} has its panel: {known[alert].panel} of {known[alert].uid}"
                    )
                known[alert] = Place(dashboard.uid, panel.id)
    return known


def written(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana's JSON."""
    return dump(_model(dashboard))


def dump(model: dict[str, Any]) -> str:
    """Write a dashboard as the bundle's files are written."""
    return msgspec.json.format(msgspec.json.encode(model), indent=2).decode() + "\n"


def _model(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["omniwatch"],
        "editable": False,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA_VERSION,
        "time": {"from": dashboard.span, "to": "now"},
        "refresh": dashboard.refresh,
        "timezone": "browser",
        "links": [
            _siblings(),
            *([_runbook("Runbooks", base)] if (base := dashboard.runbook_base_url) else []),
        ],
        "annotations": {"list": [_annotation(*item) for item in dashboard.annotations.items()]},
        "templating": {
            "list": [_datasource(), *(_variable(*item) for item in dashboard.variables.items())],
        },
        "panels": list(_panels(dashboard)),
    }


def _siblings() -> dict[str, Any]:
    return {
        "title": "Omniwatch",
        "type": "dashboards",
        "tags": ["omniwatch"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "The other dashboards, at the same time and for the same device.",
        "url": "",
    }


def _runbook(title: str, url: str) -> dict[str, Any]:
    return {
        "title": title,
        "type": "link",
        "url": url,
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "targetBlank": True,
        "icon": "doc",
        "tooltip": "What to do.",
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "options": [],
    }


def _variable(name: str, variable: Variable) -> dict[str, Any]:
    return {
        "name": name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": f"variable-{name}"},
        "definition": variable.query,
        "hide": 0,
        "refresh": 2,
        "regex": "",
        "sort": 3,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _annotation(name: str, annotation: Annotation) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": annotation.colour,
        "expr": annotation.query,
        "target": {"refId": "Anno", "expr": annotation.query, "interval": ""},
        "titleFormat": annotation.title,
        "tagKeys": ",".join(annotation.tags),
        "useValueForTime": False,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    y = 0
    for number, row in enumerate(dashboard.rows):
        yield {
            "id": FIRST_ROW_ID + number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        x, y, line = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, line = 0, y + line, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            yield panel_model(panel, place, dashboard.runbook_base_url, dashboard.scrape_interval)
            x, line = x + panel.width, max(line, panel.height)
        y += line
