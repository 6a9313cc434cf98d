"""Cut a mixture of experts down: choose which experts to keep, and write the checkpoint without the others."""

from __future__ import annotations

import click

from omniwatch.desk.cli.slice.apply import apply
from omniwatch.desk.cli.slice.keep import keep


@click.group()
def command() -> None:
    """Cut a mixture of experts down: choose which experts to keep, and write the checkpoint without the others.

    \b
    Example:
      omniwatch slice keep scores/ --experts 96 --out keep.json
      omniwatch slice apply /opt/qwen3-omni /opt/qwen3-omni-96 --keep keep.json
    """


for _one in (keep, apply):
    command.add_command(_one)
