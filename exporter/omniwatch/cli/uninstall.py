"""Take off this device what `omniwatch install` put there; configuration and state stay unless --purge."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import UserError


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
    """Stop the units and remove every file that was installed, and what `omniwatch tune --apply` wrote.

    What stays without --purge is /etc/omniwatch, /var/lib/omniwatch and the account that owns it: installing again goes on
    where it stopped.

    \b
    Example:
      sudo omniwatch uninstall
      sudo omniwatch uninstall --purge --dry-run
    """
    from omniwatch.bundle import device, services
    from omniwatch.bundle.payload import InstallError
    from omniwatch.bundle.removal import removal

    root = root.resolve()
    try:
        plan = removal(root, purge=purge)
        if dry_run:
            for path in plan.paths:
                click.echo(f"would remove {root / str(path).lstrip('/')}")
            return
        faults = services.leave(root, plan.units)
        device.remove(root, plan.paths, plan.directories)
        faults += services.forget(root, plan.units, account=plan.account)
    except InstallError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        hint = "; removing needs root" if isinstance(error, PermissionError) else ""
        raise UserError(f"{error.filename}: {error.strerror}{hint}") from error
    for path in plan.kept:
        click.echo(f"kept {root / str(path).lstrip('/')}")
    click.echo(f"removed {len(plan.paths)} files and folders")
    for fault in faults:
        click.echo(fault, err=True)
    ctx.exit(1 if faults else 0)
