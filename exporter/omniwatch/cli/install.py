"""Install the sidecar on this device; with --profile the model server's unit, with --fleet the uplink."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import click

from omniwatch.cli import Number, file_tree, need_root, os_error, say_file_names, say_settings, verbose_option
from omniwatch.system.terminal import escaped


@click.command()
@click.option(
    "--profile",
    metavar="NAME",
    help="Also install the model server's unit from this profile (deploy/profiles).",
)
@click.option(
    "--with-tap",
    is_flag=True,
    help="Add the tap in a drop-in, where the profile's command line runs none.",
)
@click.option(
    "--device-memory-gb",
    type=Number(1),
    help="What the profile has to fit. [default: as measured, or what omniwatch.yaml says where that is less]",
)
@click.option(
    "--fleet",
    is_flag=True,
    help="Also install the uplink to the centre of a fleet (fleet.remote_write_url of the device's omniwatch.yaml).",
)
@click.option(
    "--with-prometheus",
    is_flag=True,
    help="Also render the bundle and have Debian's own Prometheus and Alertmanager read it.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Install into this file tree; nothing is started then.",
)
@click.option(
    "--diff",
    "as_diff",
    is_flag=True,
    help="Print how the device differs, files that omniwatch did not write too, and write nothing; exit code 1 if it does.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be written and write nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace files that omniwatch did not write, and its manifest.json where that is damaged.",
)
@click.option("--no-start", is_flag=True, help="Write the files and start nothing.")
@verbose_option
@click.pass_context
def command(
    ctx: click.Context,
    profile: str | None,
    with_tap: bool,
    device_memory_gb: float | None,
    fleet: bool,
    with_prometheus: bool,
    root: Path,
    as_diff: bool,
    dry_run: bool,
    force: bool,
    no_start: bool,
) -> None:
    """Put Omniwatch beside the model server: its own environment in /opt/omniwatch, config, units, account, spool.

    Nothing is downloaded; the running program is what is installed. All is checked before anything is written, and a second
    run changes nothing. A configuration that is there is kept, also by an upgrade, which is this command of a newer
    version. A running model server is never restarted, and the sidecar only where its own files change. A profile whose program is
    not on the device is refused before anything is written. The last lines say what is left to be done.

    --with-prometheus renders into /etc/omniwatch/bundle, writes a drop-in for each of Debian's units, enables them and starts
    them. Where their configuration is not as Debian ships it, nothing is written, and the lines to add are printed.

    A restart or reload that failed is tried again by the next run, though no file changes.

    \b
    Example:
      sudo omniwatch install
      sudo omniwatch install --profile orin
      sudo omniwatch install --fleet
      sudo omniwatch install --with-prometheus
      omniwatch install --root /mnt/image --diff
    """
    from omniwatch.bundle import install, systemctl
    from omniwatch.bundle.health import next_steps
    from omniwatch.bundle.installed_files import CONFIG, alone
    from omniwatch.bundle.program_files import InstallError
    from omniwatch.bundle.units import Asked
    from omniwatch.system import rooted

    if not root.is_dir():
        raise click.UsageError(f"--root: {root} is not a directory")
    if with_tap and profile is None:
        raise click.UsageError("--with-tap adds to the model server of --profile.")
    root = file_tree(root)
    if not (dry_run or as_diff):
        need_root(root, "install")
    try:
        if not (dry_run or as_diff):
            ctx.with_resource(alone(root))
        config = install.site(root, profile, device_memory_gb)
        is_read = rooted.stat_of(root, CONFIG) is not None
        say_settings(ctx, rooted.shown(root, CONFIG) if is_read else None)
        asked = Asked(root, config, profile is not None, with_tap, fleet, with_prometheus)
        plan = install.plan(asked, force=force, as_diff=as_diff)
        for note in install.notes(plan, profile, device_memory_gb):
            click.echo(note, err=True)
        if says := install.absence(plan):
            if systemctl.running(root) and not (no_start or dry_run or as_diff):
                raise InstallError(f"{says}; install it first, or put the files in place with --no-start")
            click.echo(f"note: {says}", err=True)
        if as_diff:
            text = install.diff(plan)
            click.echo(escaped(text), nl=False)
            ctx.exit(1 if text or plan.gone else 0)
        rendered = install.rendered(plan) if dry_run else install.write(plan)
    except OSError as error:
        hint = "; installing needs root" if isinstance(error, PermissionError) else ""
        raise os_error(error, hint) from error
    _say(root, [item.path for item in plan.changes], plan.gone, dry_run, len(rendered))
    if dry_run:
        return
    try:
        faults = install.tell(plan, rendered, start=not no_start)
        steps = list(next_steps(config, root, with_server=asked.with_server))
    except OSError as error:
        raise os_error(error) from error
    for fault in faults:
        say_file_names(fault, err=True)
    for step in steps if (plan.changes or plan.gone) and not faults else ():
        click.echo(f"next: {step}")
    ctx.exit(1 if faults else 0)


def _say(
    root: Path, changed: list[PurePosixPath], gone: list[PurePosixPath], dry_run: bool, rendered: int
) -> None:
    from omniwatch.bundle.program_files import HOME
    from omniwatch.bundle.wiring import BUNDLE
    from omniwatch.system.rooted import shown

    program = [path for path in changed if path.is_relative_to(HOME)]
    for path in changed:
        if path not in program:
            click.echo(f"{'would write' if dry_run else 'wrote'} {shown(root, path)}")
    if program:
        click.echo(f"{'would write' if dry_run else 'wrote'} {len(program)} files below {shown(root, HOME)}")
    if rendered:
        click.echo(f"{'would write' if dry_run else 'wrote'} {rendered} files below {shown(root, BUNDLE)}")
    for path in gone:
        click.echo(f"{'would remove' if dry_run else 'removed'} {shown(root, path)}")
    if not changed and not gone and not rendered:
        click.echo("nothing to change")
