"""The form without an option: what is needed, part by part."""

from __future__ import annotations

import click

from omniwatch.desk.cli.plan.output import print_json
from omniwatch.desk.plan import plan_text
from omniwatch.desk.plan.planning import Plan


def print_table(plan: Plan, *, as_json: bool) -> None:
    """Print the plan."""
    if as_json:
        print_json(plan)
        return
    for line in plan_text.as_text(plan):
        click.echo(line)
