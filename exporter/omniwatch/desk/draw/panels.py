"""Turn a panel and the results of its queries into what is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from omniwatch.desk.draw.fields import QueryResult, appearance, legend, levels
from omniwatch.desk.draw.model import Chart, Curve, Lane, Lanes, Nothing, Points, Shown, Span, Tile, Tiles
from omniwatch.desk.draw.tables import grid
from omniwatch.desk.draw.units import text

NO_DATA = Nothing("No data")


class Named(NamedTuple):
    """A series under its legend."""

    name: str
    points: Points


def shown(panel: Mapping[str, Any], answers: Sequence[QueryResult]) -> Shown:
    """Return what is to be seen of a panel; `answers` are those to its queries, in their order."""
    kind = panel["type"]
    if kind not in _KINDS:
        return Nothing(f"A panel of type {kind} is not drawn here")
    if not any(series.points for answer in answers for series in answer.series):
        return NO_DATA
    return _KINDS[kind](panel, answers)


def _field(panel: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = panel.get("fieldConfig", {}).get("defaults", {})
    return defaults


def _named(answers: Sequence[QueryResult]) -> list[Named]:
    """Return every series with its legend, interrupted where points are missing."""
    return [
        Named(
            legend(answer.question.legend, series.labels), interrupted(series.points, answer.question.step_s)
        )
        for answer in answers
        for series in answer.series
        if series.points
    ]


def interrupted(points: Points, step_s: float) -> Points:
    """Return points with a NaN for each step that is missing, and in the place of what is no number."""
    found: Points = []
    for t, value in points:
        if found and step_s:
            last_t = found[-1][0]
            missing = round((t - last_t) / step_s) - 1
            found += [(round(last_t + number * step_s, 3), math.nan) for number in range(1, missing + 1)]
        found.append((t, value if math.isfinite(value) else math.nan))
    return found


def stacked(series: Sequence[Named]) -> list[Curve]:
    """Put each series on the ones before it; where one has no value it adds nothing."""
    times = sorted({t for one in series for t, _ in one.points})
    base = dict.fromkeys(times, 0.0)
    curves: list[Curve] = []
    for one in series:
        values = {t: 0.0 if math.isnan(value) else value for t, value in one.points}
        top = {t: base[t] + values.get(t, 0.0) for t in times}
        curves.append(Curve(one.name, list(top.items()), list(base.values())))
        base = top
    return curves


def _chart(panel: Mapping[str, Any], answers: Sequence[QueryResult]) -> Shown:
    series = _named(answers)
    if all(math.isnan(value) for one in series for _, value in one.points):
        return NO_DATA
    field = _field(panel)
    custom = field.get("custom", {})
    is_stacked = custom.get("stacking", {}).get("mode", "none") != "none"
    style = custom.get("thresholdsStyle", {}).get("mode", "off")
    curves = stacked(series) if is_stacked else [Curve(one.name, one.points) for one in series]
    return Chart(
        [
            curve._replace(colour=_fixed_colour(panel, one.name), ends=_ends(panel, one.points))
            for curve, one in zip(curves, series, strict=True)
        ],
        field.get("unit", "none"),
        levels(field),
        "line" in style or "dashed" in style,
        "area" in style,
        field.get("min"),
        field.get("max"),
    )


def _fixed_colour(panel: Mapping[str, Any], name: str) -> str:
    """Return the colour that the panel gives to series of such a name; the last that does counts, "" for none."""
    found = ""
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        matcher = override["matcher"]
        if matcher["id"] == "byRegexp" and re.search(matcher["options"].strip("/"), name):
            found = next(
                (p["value"]["fixedColor"] for p in override["properties"] if p["id"] == "color"), found
            )
    return found


def _ends(panel: Mapping[str, Any], points: Points) -> str:
    """Write what the legend has beside a series' name."""
    values = [value for _, value in points if not math.isnan(value)]
    calcs = panel.get("options", {}).get("legend", {}).get("calcs", [])
    unit = _field(panel).get("unit", "none")
    return ", ".join(
        f"{word} {text(pick(values), unit)}" for calc in calcs if values for word, pick in (_CALCS[calc],)
    )


def _tiles(panel: Mapping[str, Any], answers: Sequence[QueryResult]) -> Shown:
    field = _field(panel)
    tiles = []
    for one in _named(answers):
        last = [value for _, value in one.points if not math.isnan(value)]
        if last:
            words, colour = appearance(
                last[-1], levels(field), field.get("mappings", []), field.get("unit", "none")
            )
            tiles.append(Tile(one.name, words, colour))
    return Tiles(tiles) if tiles else NO_DATA


def _lanes(panel: Mapping[str, Any], answers: Sequence[QueryResult]) -> Shown:
    field = _field(panel)
    lanes = []
    for answer in answers:
        step_s, end = answer.question.step_s, answer.question.window.end
        for one in _named([answer]):
            spans = []
            for value, group in groupby(one.points, key=lambda point: repr(point[1])):
                times = [t for t, _ in group]
                if value != "nan":
                    words, colour = appearance(
                        float(value), levels(field), field.get("mappings", []), field.get("unit", "none")
                    )
                    spans.append(Span(times[0], min(times[-1] + step_s, max(end, times[-1])), words, colour))
            lanes.append(Lane(one.name, spans))
    return Lanes(lanes)


_CALCS: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "lastNotNull": ("last", lambda values: values[-1]),
    "max": ("max", max),
    "min": ("min", min),
}

_KINDS: dict[str, Callable[[Mapping[str, Any], Sequence[QueryResult]], Shown]] = {
    "timeseries": _chart,
    "stat": _tiles,
    "state-timeline": _lanes,
    "table": grid,
}
