"""The form --measure-disk: what reloading costs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from omniwatch.desk.cli.plan.output import print_json
from omniwatch.desk.plan import disk, plan_text
from omniwatch.desk.plan.planning import Plan


def print_disk(plan: Plan, directory: Path, *, as_json: bool) -> None:
    """Measure the disk and print how long each part takes to load. Raises PlanError, OSError."""
    speed = _measured(disk.largest(directory))
    reloads = disk.reloads(plan.result, speed.bytes_s)
    if as_json:
        print_json({"schema": 1, "speed": speed, "bytes_s": speed.bytes_s, "reloads": reloads})
        return
    past = "past the page cache" if speed.direct else "through the page cache: too fast, perhaps"
    click.echo(
        f"{speed.path}: {speed.bytes / 1e9:.2f} GB in {speed.seconds:.2f} s, {speed.bytes_s / 1e9:.2f} GB/s ({past})"
    )
    rows = [("loaded anew", "GB", "seconds at least")]
    rows += [(part.words, plan_text.gb(part.bytes), f"{part.seconds:.1f}") for part in reloads]
    for line in plan_text.table(rows):
        click.echo(line)


def _measured(path: Path) -> disk.Speed:
    if not sys.stderr.isatty():
        return disk.measure(path, lambda done, total: None)
    with click.progressbar(length=100, label=f"reading {path.name}", file=sys.stderr) as bar:
        return disk.measure(path, lambda done, total: bar.update(100 * done // total - bar.pos))
