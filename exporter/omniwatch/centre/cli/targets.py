"""Turn a fleet file into targets for file_sd_configs of Prometheus or vmagent."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import click

from omniwatch.cli import os_error
from omniwatch.system.errors import UserError


@click.command()
@click.argument("fleet_file", metavar="FLEET", type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="Write FILE instead of printing."
)
@click.option("--diff", "as_diff", is_flag=True, help="Print how FILE differs and write nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done to FILE and write nothing.")
@click.pass_context
def command(ctx: click.Context, fleet_file: Path, out: Path | None, as_diff: bool, dry_run: bool) -> None:
    """Turn the fleet file FLEET into targets for file_sd_configs of Prometheus or vmagent.

    FILE is replaced whole, and only when it changes. --diff exits 1 when there are differences.

    \b
    Example:
      omniwatch fleet targets fleet.yaml --out /etc/prometheus/targets/omniwatch.json --diff
    """
    from omniwatch.bundle import render
    from omniwatch.centre import discovery, inventory

    if out is None and (as_diff or dry_run):
        raise click.UsageError("--diff and --dry-run compare with --out FILE: give one.")
    if out is not None and out.suffix not in (".json", ".yml", ".yaml"):
        raise UserError(f"--out {out}: file_sd_configs reads names that end in .json, .yml or .yaml")
    try:
        text = discovery.document(inventory.load(fleet_file))
        if out is not None:
            files = {PurePosixPath(out.name): text}
            if as_diff:
                text = render.diff(files, out.parent)
            else:
                pending = render.changed(files, out.parent) if dry_run else render.write(files, out.parent)
                verb = "would write" if dry_run else "wrote"
                text = f"{verb if pending else 'unchanged'}: {out}\n"
    except OSError as error:
        raise os_error(error) from error
    click.echo(text, nl=False)
    ctx.exit(1 if as_diff and text else 0)
