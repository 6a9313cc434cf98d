"""The form --plot: the plan as a picture, beside another form."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.desk.plan import picture, plan_text
from omniwatch.desk.plan.planning import Plan
from omniwatch.system import atomic_write


def draw(plan: Plan, path: Path) -> None:
    """Draw the plan into a file."""
    atomic_write.replace(path, picture.encoded(plan.result, plan_text.verdict(plan.result), path))
    click.echo(f"drawn: {path}", err=True)
