"""Ask the centre how every device does."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, os_error
from omniwatch.system.errors import UserError


@click.command()
@config_option(
    "The centre's omniwatch.yaml: fleet.query_url, fleet.inventory_file and the times of its rules."
)
@click.option(
    "--prometheus.url", "url", metavar="URL", help="The centre's Prometheus API, instead of fleet.query_url."
)
@click.option(
    "--token-file",
    "token_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The bearer token of that API. fleet.token_file's goes to fleet.query_url alone.",
)
@click.option(
    "--inventory",
    "fleet_file",
    metavar="FLEET",
    type=click.Path(path_type=Path),
    help="The fleet file, instead of fleet.inventory_file; that one may be absent.",
)
@click.option(
    "--site", "sites", multiple=True, metavar="SITE", help="Only this site's; may be given more than once."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["state", "device", "site", "release", "seen", "drift", "rtt", "resume", "firing"]),
    default="state",
    show_default=True,
    help="Names in their order, the others worst first.",
)
@click.option(
    "--window",
    "window_s",
    type=click.IntRange(min=60),
    default=900,
    show_default=True,
    metavar="S",
    help="Seconds that drift and resumes are looked at over.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
    fleet_file: Path | None,
    sites: tuple[str, ...],
    order: str,
    window_s: int,
    as_json: bool,
) -> None:
    """Ask the centre how every device does.

    A line a device: when it was last heard, its worst drift and the 95th percentile of its round trips. Then the share of its
    clients that came back well, and the alerts that fire (tickets in brackets).

    Devices of the fleet file that were never heard are shown too; a * marks those that the file does not have. The exit code
    is 0 when all is well, and 1 when a device is silent, was never seen or pages. It is 2 when the centre does not answer.

    \b
    Example:
      omniwatch fleet status --prometheus.url http://centre:8428 --inventory fleet.yaml
      omniwatch fleet status --site north --sort drift --json
    """
    import json
    import time

    import msgspec

    from omniwatch import settings
    from omniwatch.centre import inventory
    from omniwatch.centre import status as account
    from omniwatch.centre.query import Centre

    try:
        fleet = settings.load(config_file).fleet
        listed = Path(fleet.inventory_file)
        devices = inventory.load(fleet_file or listed).devices if fleet_file or listed.exists() else []
        url = fleet.query_url if url is None else url
        if token_file is None and fleet.token_file and url == fleet.query_url:
            token_file = Path(fleet.token_file)
        centre = Centre(
            url,
            token_file,
            Path(fleet.ca_file) if fleet.ca_file else None,
        )
        found = account.rows(
            centre.instant, devices, time.time(), window_s, fleet.silent_after_s, fleet.interval_s
        )
    except OSError as error:
        raise os_error(error) from error
    unknown = sorted(set(sites) - {row.site for row in found})
    if unknown:
        raise UserError(f'--site: no device of a site "{unknown[0]}"')
    found = sorted((row for row in found if not sites or row.site in sites), key=account.SORTS[order])
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        click.echo(account.table(found))
        click.echo(account.summary(found))
    ctx.exit(0 if all(row.state == "well" for row in found) else 1)
