"""Dashboards drawn from a Prometheus into files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omniwatch.draw import picture, prometheus
from omniwatch.draw.fields import Answer
from omniwatch.draw.questions import Choices, questions
from omniwatch.draw.sheet import sheet
from omniwatch.draw.window import Window


def draw(
    models: Mapping[Path, Mapping[str, Any]], url: str, window: Window, choices: Choices, scrape_s: float
) -> Iterator[Path]:
    """Draw each dashboard into its file and yield that, once everything was answered. Raises DrawError, OSError."""
    sheets = {}
    for path, model in models.items():
        asked = questions(model, window, choices, scrape_s)
        sheets[path] = sheet(model, window, [Answer(each, prometheus.ask(url, each)) for each in asked])
    for path, drawn in sheets.items():
        picture.write(drawn, path)
        yield path
