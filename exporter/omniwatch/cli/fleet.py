"""Make targets for Prometheus from a fleet file, and show the state of all devices."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, os_error, web_options
from omniwatch.system import ports
from omniwatch.system.errors import UserError


@click.group()
def command() -> None:
    """Work with a fleet file, which says what devices there are, and with the centre they report to.

    \b
    Example:
      devices:
        - {name: bus-017, address: 10.8.0.17:9842, site: north, model: orin-64, release: "2026.11"}
        - {name: bus-018, address: https://gw.example.org/bus-018/metrics, site: north, model: orin-64}

    \b
      omniwatch fleet targets fleet.yaml --out /etc/prometheus/targets/omniwatch.json
      omniwatch fleet status --site north
    """


@command.command()
@click.argument("fleet_file", metavar="FLEET", type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="Write FILE instead of printing."
)
@click.option("--diff", "as_diff", is_flag=True, help="Print how FILE differs and write nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done to FILE and write nothing.")
@click.pass_context
def targets(ctx: click.Context, fleet_file: Path, out: Path | None, as_diff: bool, dry_run: bool) -> None:
    """Turn the fleet file FLEET into targets for file_sd_configs of Prometheus or vmagent.

    FILE is replaced whole, and only when it changes. --diff exits 1 when there are differences.

    \b
    Example:
      omniwatch fleet targets fleet.yaml --out /etc/prometheus/targets/omniwatch.json --diff
    """
    from pathlib import PurePosixPath

    from omniwatch.bundle import render
    from omniwatch.fleet import discovery, inventory

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


@command.command()
@click.argument("fleet_file", metavar="FLEET", type=click.Path(path_type=Path))
@web_options(f"127.0.0.1:{ports.FLEET}")
@click.option(
    "--web.host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which /targets is asked for, beside addresses, localhost and the host's own; may be given more than once.",
)
def serve(fleet_file: Path, listen: tuple[str, ...], web_config: Path | None, hosts: tuple[str, ...]) -> None:
    """Serve the fleet file FLEET's targets at /targets, for http_sd_configs of Prometheus or vmagent.

    FLEET is read anew when it changes. What does not hold is said in the log, at /-/ready and in /metrics, and the targets
    stay as they were.

    \b
    Example:
      omniwatch fleet serve fleet.yaml --web.listen-address 127.0.0.1:9844
    """
    import logging
    import signal
    import threading
    import time

    from prometheus_client import CollectorRegistry

    from omniwatch.fleet.discovery import Catalogue, make_app
    from omniwatch.system import log
    from omniwatch.web.server import serve as listening

    try:
        log.setup("info", "logfmt")
        catalogue = Catalogue(fleet_file, time.time)
        registry = CollectorRegistry()
        app = make_app(catalogue, hosts, registry)
        server = listening(listen, app, web_config, registry=registry)
    except OSError as error:
        raise os_error(error) from error
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    fields = {"targets": " ".join(f"{url}targets" for url in server.urls), "file": str(fleet_file)}
    logging.getLogger("omniwatch").info("listening", extra={"fields": fields})
    with server:
        stop.wait()


@command.command()
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
def status(
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
    from omniwatch.fleet import inventory
    from omniwatch.fleet import status as account
    from omniwatch.fleet.query import Centre

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


@command.command()
@config_option("This device's omniwatch.yaml: site.device, and the group `fleet`.")
def off(config_file: Path | None) -> None:
    """Tell the centre that this device goes off as planned, so that it is not silent.

    The uplink's unit says it whenever it is stopped, a shutdown included. What is said goes through vmagent; for Prometheus' agent give the
    device its hours in the fleet file. A device that is not back within fleet.off_max_s is a ticket.

    \b
    Example:
      omniwatch fleet off
    """
    import time

    from omniwatch import settings
    from omniwatch.fleet import leaving

    site = settings.load(config_file)
    leaving.say_off(site, time.time())
