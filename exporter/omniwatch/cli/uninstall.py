"""Remove what `omniwatch install` wrote; configuration and state stay unless --purge."""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from pathlib import Path, PurePosixPath

import click

from omniwatch.cli import file_tree, need_root, os_error, say_file_names
from omniwatch.system.errors import UserError


@click.command()
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="The file tree it was installed into.",
)
@click.option("--purge", is_flag=True, help="Remove configuration, state and account too.")
@click.option("--yes", is_flag=True, help="Do not ask before --purge removes files that you made.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed and remove nothing.")
@click.pass_context
def command(ctx: click.Context, root: Path, purge: bool, yes: bool, dry_run: bool) -> None:
    """Stop the units, remove every file that was installed, and bring back what was there before.

    What `omniwatch tune --apply` wrote is taken back, for whichever unit.

    Without --purge stay /etc/omniwatch, what the units keep in /var/lib, and the account that owns it. Installing again then
    delivers what waited for a chat robot or for the centre. A unit that somebody has changed since it was installed stays,
    too; installing again replaces that one only with --force. --purge also takes what an earlier removal left. Debian's
    Prometheus and Alertmanager go back to their own configuration. One that was
    not enabled before is stopped, and does not start with the device any more. Where one of them still reads /etc/omniwatch/bundle,
    --purge keeps /etc/omniwatch and says what to change.

    Before --purge removes what you made in /etc/omniwatch, such as secrets, certificates and settings that you changed, it
    lists them and asks. Without a terminal to ask on, it refuses unless --yes is given.

    \b
    Example:
      sudo omniwatch uninstall
      sudo omniwatch uninstall --purge --dry-run
    """
    from omniwatch.bundle import uninstall
    from omniwatch.bundle.installed_files import alone
    from omniwatch.system import rooted
    from omniwatch.tune import dropin

    root = file_tree(root)
    if not dry_run:
        need_root(root, "uninstall")
    try:
        if not dry_run:
            ctx.with_resource(alone(root))
        plan = uninstall.removal(root, purge=purge)
        if dry_run:
            plan, readers = uninstall.foreseen(root, plan)
            for unit in plan.tuned:
                does = "restore" if dropin.has_before(dropin.place(unit), root) else "remove"
                say_file_names(f"would {does} {rooted.shown(root, dropin.place(unit))}")
            for path in plan.congestion:
                say_file_names(f"would take back {rooted.shown(root, path)}")
            for path in plan.paths:
                say_file_names(f"would remove {_described(root, path, plan.changed)}")
            for path in plan.of_user:
                say_file_names(f"would remove {rooted.shown(root, path)}, which you made or changed")
            for path in plan.kept:
                say_file_names(f"would keep {_described(root, path, plan.changed)}")
            for line in readers:
                say_file_names(line, err=True)
            return
        lost = [] if yes else uninstall.foreseen(root, plan)[0].of_user
        if lost:
            _ask([rooted.shown(root, path) for path in lost])
        plan, faults = uninstall.carry_out(root, plan)
    except OSError as error:
        hint = "; removing needs root" if isinstance(error, PermissionError) else ""
        raise os_error(error, hint) from error
    for path in plan.kept:
        say_file_names(f"kept {_described(root, path, plan.changed)}")
    for path in plan.changed if purge else []:
        say_file_names(f"removed {_described(root, path, plan.changed)}")
    for unit in plan.tuned:
        target = dropin.place(unit)
        done = "restored" if rooted.is_there(root, target) else "removed"
        say_file_names(f"{done} {rooted.shown(root, target)}")
    for path in plan.congestion:
        say_file_names(f"took back {rooted.shown(root, path)}")
    if plan.paths or not (plan.tuned or plan.congestion):
        say_file_names(f"removed {len(plan.paths)} files and folders" if plan.paths else "nothing to remove")
    for fault in faults:
        say_file_names(fault, err=True)
    ctx.exit(1 if faults else 0)


def _ask(paths: Sequence[Path]) -> None:
    """List what would be lost, and end here unless the user agrees. Raises UserError where nobody can be asked."""
    for path in paths:
        say_file_names(f"you made or changed {path}", err=True)
    if not sys.stdin.isatty():
        raise UserError("--purge would remove what you made, nothing is removed; with --yes it does not ask")
    if not click.confirm("Remove it for good?", err=True):
        raise UserError("nothing is removed")


def _described(root: Path, path: PurePosixPath, changed: Container[PurePosixPath]) -> str:
    from omniwatch.system import rooted

    return f"{rooted.shown(root, path)}{', changed since it was installed' if path in changed else ''}"
