"""Render rules, runbooks and configuration for a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import config_option, of_desk, os_error
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.bundle.render import Files


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@config_option("The site's omniwatch.yaml.")
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Write to DIR instead of printing."
)
@click.option("--diff", "as_diff", is_flag=True, help="Print how DIR differs and write nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be written to DIR and write nothing.")
@click.option("--kubernetes", is_flag=True, help="Render the objects of a cluster instead. At a desk.")
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    config_file: Path | None,
    out: Path | None,
    as_diff: bool,
    dry_run: bool,
    kubernetes: bool,
) -> None:
    """Render the alert rules and their unit tests, the dashboards, the runbooks, and the configuration of Prometheus,
    Alertmanager and Grafana.

    NAME is a file's name, its path as it stands below DIR, or a glob of either, such as "*.rules.yaml"; without one, all
    are meant. The text goes to standard output: of one file just as it is, of several with a line "# file: ..." before
    each. With --out, files are written that are new or different; each is replaced whole.

    With --kubernetes it is a kustomize base instead, with an example overlay: the sidecar's objects, and rules, routes and
    dashboards for the Prometheus operator. The settings' section `kubernetes` says where they go.

    What is asked for is checked first, by promtool and amtool too where they are installed. When a check fails, nothing is
    written and the exit code is 2, as for every other error; --diff exits 1 when there are differences.

    \b
    Example:
      omniwatch render streaming.rules.yaml > /etc/prometheus/rules/streaming.rules.yaml
      omniwatch render "alerts/*.rules.yaml" --out /etc/prometheus/rules
      omniwatch render --config.file omniwatch.yaml --out /etc/omniwatch/bundle --diff
      omniwatch render --kubernetes --config.file omniwatch.yaml --out deploy/omniwatch
    """
    from omniwatch import settings
    from omniwatch.bundle import check, profiles, render

    if out is None and (as_diff or dry_run):
        raise click.UsageError("--diff and --dry-run compare with --out DIR: give one.")
    try:
        site = settings.load(config_file)
        if kubernetes:
            files, results = of_desk("kubernetes", "render --kubernetes").rendered(site, names)
        else:
            chosen = render.select(render.paths(), names) if names else None
            files = render.render(site, only=chosen)
            files = {path: files[path] for path in chosen or files}
            results = check.check_files(files, unit_tests=False, whole=not names)
        profile = profiles.load(site.server.profile)
        if profile.published and (trouble := profiles.too_large(profile, site.server.device_memory_gb)):
            click.echo(f"warning: {trouble}", err=True)
        failed = [str(result) for result in results if result.status is check.Status.FAILED]
        if failed:
            raise UserError("\n".join(["what was rendered does not hold, nothing is written", *failed]))
        if out is None:
            text = _joined(files)
        elif as_diff:
            text = render.diff(files, out)
        else:
            pending = render.changed(files, out) if dry_run else render.write(files, out)
            verb = "would write" if dry_run else "wrote"
            text = "".join(f"{verb if path in pending else 'unchanged'}: {out / path}\n" for path in files)
    except OSError as error:
        raise os_error(error) from error
    click.echo(text, nl=False)
    if out is not None:
        for result in results:
            if result.status is check.Status.ABSENT:
                click.echo(str(result), err=True)
    ctx.exit(1 if as_diff and text else 0)


def _joined(files: Files) -> str:
    if len(files) == 1:
        return next(iter(files.values()))
    return "".join(f"# file: {path}\n{text}" for path, text in files.items())
