"""Lints of what is shipped: alerts, dashboards and runbook pages, each held against the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.lints import alerts, dashboards
from omniwatch.bundle import catalogue
from omniwatch.bundle.yaml_text import load_yaml


def of_bundle(directory: Path, root: Path | None = None) -> list[str]:
    """Return every problem of a rendered bundle, a line each: "alert: CodecDrift: no label severity".

    `root` has the data folders that it was rendered from, where they are not the project's own.
    """
    rules, tests = (_read(directory, kind) for kind in ("rules", "test"))
    models = [json.loads(path.read_text()) for path in sorted(directory.glob("dashboards/*.json"))]
    pages = {path.name: path.read_text() for path in directory.glob("runbooks/*.md")}
    found = {
        "alert": alerts.lint(rules, tests, pages),
        "catalogue": alerts.lint_catalogue(rules, catalogue.load(root)),
        "runbook": alerts.lint_pages(rules, pages, {model["uid"]: model for model in models}),
        "interval": alerts.intervals(rules, tests),
        "dashboard": ((model["uid"], line) for model in models for line in dashboards.lint(model)),
    }
    return [f"{kind}: {name}: {line}" for kind, lines in found.items() for name, line in lines]


def _read(directory: Path, kind: str) -> dict[Path, dict[str, Any]]:
    return {path: load_yaml(path.read_text()) for path in sorted(directory.glob(f"alerts/*.{kind}.yaml"))}
