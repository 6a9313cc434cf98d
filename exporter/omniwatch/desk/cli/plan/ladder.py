"""The form --ladder: what each step down buys."""

from __future__ import annotations

import click

from omniwatch.desk.cli.plan.output import print_json
from omniwatch.desk.plan import ladder, plan_text
from omniwatch.desk.plan.memory import Wanted


def print_ladder(wanted: Wanted, *, as_json: bool) -> None:
    """Print the steps, and what fewer experts need."""
    rungs, slices = list(ladder.rungs(wanted)), list(ladder.slices(wanted))
    if as_json:
        print_json({"schema": 1, "steps": rungs, "experts": slices})
        return
    for line in plan_text.ladder_text(rungs, slices):
        click.echo(line)
