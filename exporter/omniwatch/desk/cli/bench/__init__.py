"""Measure the project's own parts, and speaking servers, on this machine."""

from __future__ import annotations

import click

from omniwatch.desk.cli.bench.chain import chain
from omniwatch.desk.cli.bench.results import compare, merge
from omniwatch.desk.cli.bench.resume import resume


@click.group()
def command() -> None:
    """Measure the project's own parts, and speaking servers, on this machine.

    \b
    Example:
      omniwatch bench resume --scenario tunnel --seeds 1
      omniwatch bench chain questions/ --native http://127.0.0.1:8000
    """


for _one in (resume, chain, merge, compare):
    command.add_command(_one)
