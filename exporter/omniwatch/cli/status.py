"""Show the state of the installation on this device: files, units, readiness, CPU quota, what fires."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import click

from omniwatch.cli import file_tree, say_settings, verbose_option
from omniwatch.system.errors import UserError
from omniwatch.system.terminal import escaped

WIDTH = 31
"""Characters of the longest name of a line: prometheus-alertmanager.service."""


@click.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Look at this file tree.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbose_option
@click.pass_context
def command(ctx: click.Context, root: Path, as_json: bool) -> None:
    """Say whether all that was installed is well, and what fires now.

    It looks at the installed files, the configuration, the units, the sidecar's readiness and the server's CPU quota. It looks who
    gets a page, and whether Prometheus, Alertmanager and the bridge work. For each alert that fires it says since when, and to
    which receivers it goes.

    Prometheus is asked whether it runs what is written, evaluates each group of rules within two intervals, and reaches the sidecar
    and Alertmanager. Alertmanager is asked whether it runs what is written and sees the heartbeat. The sidecar is asked whether it
    runs with the settings' file, and the bridge what its robots did not take, since when. All are asked at once, for two seconds.

    The exit code is 0 when all that was installed and set up is well. It is 1 when a line begins with BAD, for a fault. It is 2 when
    something could not be looked at (a line that begins with ?) and nothing else is wrong. Of faults that follow from each other,
    only the first is one. A line that begins with - is no fault. It tells of a model server that was not installed, an event file
    that is not there yet, or what follows from another fault. Settings without a receiver are no fault, either. As soon as they name
    a receiver, a robot or a fleet, whatever keeps a page from a person is a fault. `omniwatch check` fails until a person gets pages.

    \b
    Example:
      omniwatch status
      omniwatch status --json
    """
    from omniwatch.bundle.finding import Unseen
    from omniwatch.bundle.health import findings
    from omniwatch.bundle.installed_files import CONFIG
    from omniwatch.system import rooted

    if not root.is_dir():
        raise UserError(f"--root: {root} is not a directory")
    root = file_tree(root)
    with suppress(UserError, OSError):
        say_settings(ctx, rooted.shown(root, CONFIG) if rooted.is_there(root, CONFIG) else None)
    found = list(findings(root))
    unseen = [finding for finding in found if isinstance(finding, Unseen)]
    if as_json:
        listed = [finding._asdict() | {"seen": finding not in unseen} for finding in found]
        click.echo(json.dumps(listed, indent=2))
    else:
        for finding in found:
            sign = "?" if finding in unseen else {True: "ok", False: "BAD", None: "-"}[finding.ok]
            click.echo(f"{sign:<4}{finding.what:<{WIDTH}} {escaped(finding.says)}")
    bad = any(finding.ok is False for finding in found if finding not in unseen)
    ctx.exit(1 if bad else 2 if unseen else 0)
