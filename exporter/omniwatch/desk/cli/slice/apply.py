"""Write a checkpoint without the experts that keep.json does not name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import os_error, shows_progress

if TYPE_CHECKING:
    from omniwatch.desk.slice.apply import Cutting

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option(
    "--keep",
    "keep_path",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="Which experts stay: written by `omniwatch slice keep`.",
)
@click.option(
    "--hash", "hashes", is_flag=True, help="Put the digest of each file of MODEL into SLICE.md, too."
)
@click.option("--dry-run", is_flag=True, help="Check everything, print what it saves, and write nothing.")
def apply(model: Path, out: Path, keep_path: Path, hashes: bool, dry_run: bool) -> None:
    """Write the checkpoint in MODEL to OUT without the experts that keep.json drops.

    Tensors are copied as they are, quantised ones too. The other experts are numbered anew, and routers and config.json follow.
    A token takes as many experts as before. OUT appears when all of it is written. Killed, the same command goes on where it was.

    \b
    Example:
      omniwatch slice apply /opt/qwen3-omni /opt/qwen3-omni-96 --keep keep.json --dry-run
      omniwatch slice apply /opt/qwen3-omni /opt/qwen3-omni-96 --keep keep.json
    """
    from omniwatch.desk.slice import apply as cuts

    try:
        cutting = cuts.check(model, out, keep_path)
        if dry_run:
            cuts.check_place(cutting)
            _print_sizes(cutting)
            return
        _write(cutting, hashes)
    except OSError as error:
        raise os_error(error) from error
    click.echo(f"{out}: {cutting.size / 1e9:.2f} GB; {out / 'SLICE.md'} says what it is")


def _write(cutting: Cutting, hashes: bool) -> None:
    from omniwatch.desk.slice import apply as cuts

    def goes_on(there: int) -> None:
        click.echo(f"{cutting.out}: goes on where it was, {there / 1e9:.2f} GB are there", err=True)

    try:
        if not shows_progress():
            cuts.write(cutting, hashes=hashes, goes_on=goes_on)
            return
        with click.progressbar(length=cutting.size, label="writing", file=sys.stderr) as bar:
            cuts.write(cutting, hashes=hashes, told=bar.update, goes_on=goes_on)
    except KeyboardInterrupt:
        click.echo(f"\n{cutting.out}: not whole; the same command goes on where it was", err=True)
        raise


def _print_sizes(cutting: Cutting) -> None:
    from omniwatch.desk.plan.plan_text import gb, table
    from omniwatch.desk.slice.sizes import sizes

    rows = [("component", "GB", "GB after")]
    rows += [(row.words, gb(row.before), gb(row.after)) for row in sizes(cutting.source, cutting.files)]
    for line in table(rows):
        click.echo(line)
    for name, part in cutting.source.parts.items():
        click.echo(f"{name}: {part.experts} experts a layer, {cutting.keep.count(name, part.experts)} after")
    count = len(cutting.files)
    click.echo(
        f"{cutting.out}: {count} file{'s' if count > 1 else ''} of weights; nothing is written (--dry-run)"
    )
