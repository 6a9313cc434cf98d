"""Read a site's rendered Prometheus configuration: which rules it loads, and how it labels what it scrapes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

import yaml

from omniwatch.bundle import render
from omniwatch.desk.backtest import routes
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.routes import Routing
from omniwatch.settings import Settings

JOB = "omniwatch"
CONFIG = PurePosixPath("deploy/prometheus/prometheus.yml")
ALERTMANAGER = PurePosixPath("deploy/alertmanager/alertmanager.yml")
CENTRE_ALERTMANAGER = PurePosixPath("deploy/fleet/centre-alertmanager.yml")


class Site(NamedTuple):
    """Labels of each scrape, the sidecar's first; the rule files; and how alerts reach people."""

    targets: list[dict[str, str]]
    rule_files: list[Path]
    routing: Routing


def rendered(settings: Settings, directory: Path) -> Site:
    """Render rules and configuration below `directory`; return what Prometheus would load. Raises RenderError, OSError."""
    files = render.render(settings)
    wanted = {
        path: text for path, text in files.items() if path == CONFIG or path.name.endswith(".rules.yaml")
    }
    render.write(wanted, directory)
    config = yaml.safe_load(files[CONFIG])
    targets = [
        {"job": scrape["job_name"], "instance": address, **static.get("labels", {})}
        for scrape in config["scrape_configs"]
        for static in scrape["static_configs"]
        for address in static["targets"]
    ]
    targets.sort(key=lambda target: target["job"] != JOB)
    if not targets or targets[0]["job"] != JOB:
        raise BacktestError(f"{CONFIG}: no job {JOB}")
    folder = (directory / CONFIG).parent
    paths = [path.resolve() for pattern in config["rule_files"] for path in sorted(folder.glob(pattern))]
    notifies = CENTRE_ALERTMANAGER if settings.fleet.alertmanager_urls else ALERTMANAGER
    return Site(targets, paths, routes.read(files[notifies], files[CONFIG]))
