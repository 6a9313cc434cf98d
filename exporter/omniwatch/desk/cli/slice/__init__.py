"""Cut a mixture of experts down: score them, choose which to keep, write the checkpoint without the others, and measure the cost."""

from __future__ import annotations

import click

from omniwatch.desk.cli.slice.apply import apply
from omniwatch.desk.cli.slice.compare import compare
from omniwatch.desk.cli.slice.keep import keep
from omniwatch.desk.cli.slice.score import score


@click.group()
def command() -> None:
    """Cut a mixture of experts down: score them, choose which to keep, write the checkpoint without the others, and measure the cost.

    \b
    Example:
      omniwatch slice score /opt/qwen3-omni questions/ --out scores/
      omniwatch slice keep scores/ --experts 96 --out keep.json
      omniwatch slice apply /opt/qwen3-omni /opt/qwen3-omni-96 --keep keep.json
      omniwatch slice compare /opt/qwen3-omni /opt/qwen3-omni-96 questions/ --answers scores/
    """


for _one in (score, keep, apply, compare):
    command.add_command(_one)
