"""Draw dashboards from a Prometheus into files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omniwatch.desk.draw import picture, prometheus
from omniwatch.desk.draw.fields import QueryResult
from omniwatch.desk.draw.queries import Choices, DrawError, queries, values_query
from omniwatch.desk.draw.sheet import sheet
from omniwatch.desk.draw.window import Window


def draw(
    models: Mapping[Path, Mapping[str, Any]], url: str, window: Window, choices: Choices, scrape_s: float
) -> Iterator[Path]:
    """Draw each dashboard into its file and yield that, once everything was answered. Raises DrawError, OSError."""
    questions = {path: list(queries(model, window, choices, scrape_s)) for path, model in models.items()}
    for name, values in choices.items():
        _expect(url, models.values(), window, name, values)
    sheets = {}
    for path, model in models.items():
        asked = questions[path]
        sheets[path] = sheet(model, window, [QueryResult(each, prometheus.ask(url, each)) for each in asked])
    for path, drawn in sheets.items():
        picture.write(drawn, path)
        yield path


def _expect(
    url: str, models: Collection[Mapping[str, Any]], window: Window, name: str, values: Sequence[str]
) -> None:
    """Refuse a value that no dashboard's variable has in this time: its pictures would be empty. Raises DrawError."""
    found: set[str] = set()
    for model in models:
        for series in prometheus.ask(url, values_query(model, name, window)):
            found.update(series.labels.values())
    for value in values:
        if value not in found:
            known = f"there are {', '.join(sorted(found))}" if found else "there is none"
            raise DrawError(f"--var {name}={value}: no such {name} in this time; {known}")
