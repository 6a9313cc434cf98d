"""Remove what `omniwatch install` wrote; configuration and state stay unless --purge."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path, PurePosixPath

import click

from omniwatch.cli import os_error


@click.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="The file tree it was installed into.",
)
@click.option("--purge", is_flag=True, help="Remove configuration, state and account too.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed and remove nothing.")
@click.pass_context
def command(ctx: click.Context, root: Path, purge: bool, dry_run: bool) -> None:
    """Stop the units and remove every file that was installed; take back what `omniwatch tune --apply` wrote, for whichever
    unit, and bring back what was there before.

    What stays without --purge is /etc/omniwatch, what the units keep in /var/lib (what the bridge has not delivered, what
    waits for the centre) and the account that owns it: installing again goes on where it stopped. A unit that somebody has
    changed since it was installed stays, too; installing again replaces that one only with --force. --purge also takes what
    an earlier removal left. Debian's Prometheus and Alertmanager go back to their own configuration; where one of them reads
    /etc/omniwatch/bundle all the same, --purge keeps /etc/omniwatch and says what to change.

    \b
    Example:
      sudo omniwatch uninstall
      sudo omniwatch uninstall --purge --dry-run
    """
    from omniwatch.bundle import uninstall
    from omniwatch.bundle.installed_files import alone
    from omniwatch.tune import dropin

    root = root.resolve()
    try:
        if not dry_run:
            ctx.with_resource(alone(root))
        plan = uninstall.removal(root, purge=purge)
        if dry_run:
            plan, readers = uninstall.foreseen(root, plan)
            for target in plan.tuned:
                click.echo(f"would {'restore' if dropin.has_before(target) else 'remove'} {target}")
            for path in plan.paths:
                click.echo(f"would remove {_told(root, path, plan.changed)}")
            for path in plan.kept:
                click.echo(f"would keep {_told(root, path, plan.changed)}")
            for line in readers:
                click.echo(line, err=True)
            return
        plan, faults = uninstall.carry_out(root, plan)
    except OSError as error:
        hint = "; removing needs root" if isinstance(error, PermissionError) else ""
        raise os_error(error, hint) from error
    for path in plan.kept:
        click.echo(f"kept {_told(root, path, plan.changed)}")
    for path in plan.changed if purge else []:
        click.echo(f"removed {_told(root, path, plan.changed)}")
    for target in plan.tuned:
        click.echo(f"{'restored' if os.path.lexists(target) else 'removed'} {target}")
    if plan.paths or not plan.tuned:
        click.echo(f"removed {len(plan.paths)} files and folders" if plan.paths else "nothing to remove")
    for fault in faults:
        click.echo(fault, err=True)
    ctx.exit(1 if faults else 0)


def _told(root: Path, path: PurePosixPath, changed: Container[PurePosixPath]) -> str:
    from omniwatch.bundle.installed_files import at

    return f"{at(root, path)}{', changed since it was installed' if path in changed else ''}"
