"""The shipped dashboards as Grafana reads them."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from omniwatch.bundle import dashboards, data, render
from omniwatch.settings import Settings

NAMES = sorted(
    path.name.removesuffix(dashboards.SUFFIX) for path in (data.root() / "dashboards").glob("*.yaml.j2")
)


def model(name: str, settings: Settings | None = None) -> dict:
    path = PurePosixPath(f"dashboards/{name}.json")
    return json.loads(render.render(settings or Settings(), only=[path])[path])
