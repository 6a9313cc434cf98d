"""Collect a dashboard's queries, of panels and annotations, with variables and windows filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from omniwatch.bundle.dashboard_json import filled, panels
from omniwatch.bundle.dashboards import DashboardError
from omniwatch.bundle.panels import COLUMNS
from omniwatch.desk.draw.window import Window, duration, rate_s, seconds, step_s

POINTS_PER_COLUMN = 20
"""Of the grid: a panel that is half as wide has as many points as it can show, and no more."""
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+),\s*(?P<label>\w+)\)")
Choices = Mapping[str, Sequence[str]]
"""Values by variable; a variable that is not there has all."""


class DrawError(DashboardError):
    """It cannot be drawn."""


class Query(NamedTuple):
    """One query: `step_s` is 0 where only the value at `window`'s end is asked for."""

    place: str
    """Of the panel ("3") or annotation ("Pages")."""
    ref: str
    legend: str
    expression: str
    window: Window
    step_s: float


def queries(model: Mapping[str, Any], window: Window, choices: Choices, scrape_s: float) -> Iterator[Query]:
    """Yield what a dashboard asks for, in the order of its panels. Raises DrawError for a choice it does not have."""
    chosen = _chosen(model, choices)
    for panel in panels(dict(model)):
        for target in panel.get("targets", []):
            target_scrape_s = _seconds(target) or scrape_s
            least_s = max(_seconds(panel), target_scrape_s)
            step = step_s(window, panel["gridPos"]["w"] * POINTS_PER_COLUMN, least_s)
            expression = filled(target["expr"], chosen | _windows(window, step, target_scrape_s))
            legend = target.get("legendFormat", "")
            asked = window if target.get("instant") else window.aligned(step)
            yield Query(
                str(panel["id"]),
                target["refId"],
                legend,
                expression,
                asked,
                0.0 if target.get("instant") else step,
            )
    step = step_s(window, COLUMNS * POINTS_PER_COLUMN, scrape_s)
    for annotation in model.get("annotations", {}).get("list", []):
        if annotation.get("enable") and annotation.get("expr"):
            expression = filled(annotation["expr"], chosen | _windows(window, step, scrape_s))
            title = annotation.get("titleFormat", "")
            yield Query(annotation["name"], "", title, expression, window.aligned(step), step)


def variables(model: Mapping[str, Any]) -> list[str]:
    """Return the names of a dashboard's variables, but for that of its data source."""
    listed = model.get("templating", {}).get("list", [])
    return [variable["name"] for variable in listed if variable.get("type") == "query"]


def label_values(variable: Mapping[str, Any]) -> tuple[str, str]:
    """Return the series and the label whose values a variable lists; both "" where it lists something else."""
    match = _LABEL_VALUES.fullmatch(listing(variable))
    return (match["series"], match["label"]) if match else ("", "")


def listing(variable: Mapping[str, Any]) -> str:
    """Return the query of a variable, which Grafana writes by itself or as a part of an object."""
    query = variable.get("query", "")
    return str(query.get("query", "") if isinstance(query, dict) else query)


def values_query(model: Mapping[str, Any], name: str, window: Window) -> Query:
    """Return what asks for the values that a variable has in a time, each the only label of a series."""
    listed = {variable["name"]: variable for variable in model["templating"]["list"]}
    series, label = label_values(listed[name])
    everything = filled(series, dict.fromkeys(variables(model), ".+"))
    range_s = max(round(window.length_s), 1)
    expression = f"group by ({label}) (last_over_time({everything}[{range_s}s]))"
    return Query(name, "", "", expression, window, 0.0)


def _chosen(model: Mapping[str, Any], choices: Choices) -> dict[str, str]:
    known = variables(model)
    for name in choices:
        if name not in known:
            raise DrawError(f"no variable {name!r} on {model['uid']}; there are {', '.join(known)}")
    return {name: _pattern(choices[name]) if choices.get(name) else ".+" for name in known}


def _pattern(values: Sequence[str]) -> str:
    """Write values as the inside of a quoted regular expression that matches them alone."""
    escaped = [
        re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\").replace('"', '\\"'))
        for value in values
    ]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _seconds(model: Mapping[str, Any]) -> float:
    return seconds(model["interval"]) if model.get("interval") else 0.0


def _windows(window: Window, step: float, scrape_s: float) -> dict[str, str]:
    range_s = max(round(window.length_s), 1)
    return {
        "__interval": duration(step),
        "__interval_ms": str(round(step * 1000)),
        "__rate_interval": duration(rate_s(step, scrape_s)),
        "__range": f"{range_s}s",
        "__range_s": str(range_s),
        "__range_ms": str(range_s * 1000),
    }
