"""Turn a dashboard and its query results into a sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omniwatch.bundle.dashboard_json import panels
from omniwatch.desk.draw.fields import QueryResult, legend
from omniwatch.desk.draw.model import Frame, Mark, Place, Sheet
from omniwatch.desk.draw.panels import shown
from omniwatch.desk.draw.window import Window


def sheet(model: Mapping[str, Any], window: Window, answers: Sequence[QueryResult]) -> Sheet:
    """Lay the answers out as the dashboard has its panels."""
    at: dict[str, list[QueryResult]] = {}
    for answer in answers:
        at.setdefault(answer.question.place, []).append(answer)
    return Sheet(
        model["title"],
        model.get("description", ""),
        window,
        [(panel["title"], panel["gridPos"]["y"]) for panel in model["panels"] if panel["type"] == "row"],
        [
            Frame(
                panel["title"],
                panel.get("description", ""),
                Place(*(panel["gridPos"][side] for side in "xywh")),
                shown(panel, at.get(str(panel["id"]), [])),
            )
            for panel in panels(dict(model))
        ],
        [
            (
                annotation["name"],
                annotation["iconColor"],
                _marks(at[annotation["name"]], annotation["iconColor"]),
            )
            for annotation in model.get("annotations", {}).get("list", [])
            if annotation["name"] in at
        ],
    )


def _marks(answers: Sequence[QueryResult], colour: str) -> list[Mark]:
    """Mark where each series begins to have points, and begins again."""
    marks: list[Mark] = []
    for answer in answers:
        for series in answer.series:
            last_t = float("-inf")
            for t, _ in series.points:
                if t - last_t > 1.5 * answer.question.step_s:
                    marks.append(Mark(t, legend(answer.question.legend, series.labels), colour))
                last_t = t
    return sorted(set(marks))
