"""Show the state of the installation on this device: files, units, readiness, CPU quota, what fires."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Look at this file tree.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, root: Path, as_json: bool) -> None:
    """Look at the installed files, the configuration, the units, the sidecar's readiness, the server's CPU quota, who is
    told of a page, and what fires now: since when, and where that goes.

    The exit code is 0 when all that was installed and set up is well, and 1 when something is not. A line that begins with - is no
    fault: a model server that was not installed, an event file that is not there yet, receivers of which the settings say nothing.
    As soon as they name a receiver, a robot or a fleet, whatever keeps a page from a person is one. `omniwatch check --config.file`
    fails until a person is told.

    \b
    Example:
      omniwatch status
      omniwatch status --json
    """
    from omniwatch.bundle.health import findings

    found = list(findings(root.resolve()))
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in found], indent=2))
    else:
        for finding in found:
            sign = {True: "ok", False: "BAD", None: "-"}[finding.ok]
            click.echo(f"{sign:<4}{finding.what:<24} {finding.says}")
    ctx.exit(1 if any(finding.ok is False for finding in found) else 0)
