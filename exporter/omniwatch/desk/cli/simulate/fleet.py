"""Serve the metrics of a simulated fleet over HTTP."""

from __future__ import annotations

import time

import click

from omniwatch.cli import Number, shows_progress
from omniwatch.system import ports
from omniwatch.system.errors import UserError

PROGRESS_S = 0.5
"""Seconds between two updates of the progress on a terminal."""


@click.command()
@click.argument("count", metavar="DEVICES", type=click.IntRange(min=1, max=100_000))
@click.option("--seed", default=1, show_default=True, help="Same options and seed: same fleet.")
@click.option(
    "--web.listen-address",
    "listen",
    default=f"127.0.0.1:{ports.SIMULATED_FLEET}",
    show_default=True,
    metavar="ADDRESS",
    help="Where to serve.",
)
@click.option(
    "--outages",
    type=Number(0, 0.9),
    default=0.02,
    show_default=True,
    metavar="SHARE",
    help="Devices that do not answer, at any time.",
)
@click.option(
    "--outage",
    "outage_s",
    type=Number(min=1),
    default=300,
    show_default=True,
    metavar="S",
    help="How long a device does not answer.",
)
@click.option(
    "--skewed",
    type=Number(0, 1),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Devices whose clock is minutes off.",
)
@click.option("--quiet", is_flag=True, help="Show no progress, on a terminal neither.")
def fleet(
    count: int, seed: int, listen: str, outages: float, outage_s: float, skewed: float, quiet: bool
) -> None:
    """Serve what a fleet of DEVICES (1 to 100000) sends to its centre.

    /devices/NAME/metrics has what one device sends, /targets all of them for http_sd_configs, /fleet.yaml the fleet file.
    Some are away, some have a clock that is off, some are in trouble, and one release is worse than the other.

    \b
    Example:
      omniwatch simulate fleet 2000 --outages 0.05 --outage 120
    """
    import asyncio

    from omniwatch.desk.link.serve import address
    from omniwatch.desk.simulation.fleet import Plan
    from omniwatch.desk.simulation.fleet_server import serve

    plan = Plan(count, seed, outages, outage_s, skewed)
    answers, next_at = {True: 0, False: 0}, 0.0
    terminal = shows_progress() and not quiet

    def ready(url: str) -> None:
        click.echo(f"{count} devices at {url}/targets, seed {seed}", err=True)

    def answered(well: bool) -> None:
        nonlocal next_at
        answers[well] += 1
        if terminal and time.monotonic() >= next_at:
            next_at = time.monotonic() + PROGRESS_S
            click.echo(f"\r{answers[True]} answers, {answers[False]} while away\x1b[K", nl=False, err=True)

    try:
        asyncio.run(serve(plan, address(listen), time.time, ready, answered))
    except ValueError as error:
        raise UserError(f"--web.listen-address: {error}") from error
    except OSError as error:
        raise UserError(f"{listen}: {error.strerror or error}") from error
    click.echo(f"{answers[True]} answers, {answers[False]} while away", err=True)
