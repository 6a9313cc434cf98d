"""Try how a page reaches people."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import Number, config_option

BRIDGE_S = 2.0
"""Seconds within which the bridge answers."""


@click.command()
@config_option("This device's omniwatch.yaml.")
@click.option("--test", "is_test", is_flag=True, help="Send a test alert. There is nothing else to do yet.")
@click.option(
    "--severity",
    type=click.Choice(["page", "ticket"]),
    default="page",
    show_default=True,
    help="A ticket waits in Alertmanager for 30 s before it leaves.",
)
@click.option(
    "--timeout",
    "within_s",
    type=Number(1),
    default=None,
    metavar="S",
    help="Wait for receivers for so long. [default: 30, a ticket 60]",
)
@click.pass_context
def command(
    ctx: click.Context, config_file: Path | None, is_test: bool, severity: str, within_s: float | None
) -> None:
    """Send a test alert through the running Alertmanager; say which receivers took it and how long it took.

    It goes to site.alertmanager, or to fleet.alertmanager_urls: to each of them. Of a chat robot it is the robot's own answer
    that is waited for, which the bridge on this device knows. What another receiver took is read from Alertmanager's own
    counters. A heartbeat is a webhook, too, and never counts. Where the page goes to a webhook of yours, the test begins just
    after a heartbeat, at most a minute later. The alert ends with the command.

    The exit code is 0 when every receiver of the settings took it, and 1 when one did not or there is none. It is 2 when
    Alertmanager is not reached.

    \b
    Example:
      omniwatch page --test
    """
    import time
    from functools import partial
    from typing import cast

    from omniwatch import settings
    from omniwatch.bundle import alertmanager, bridge, delivery, trial_page
    from omniwatch.settings.receivers import Severity

    if not is_test:
        raise click.UsageError("say --test: a page is sent to people.")
    severity = cast(Severity, severity)
    within_s = within_s or (30 if severity == "page" else 60)
    taken = []
    site = settings.load(config_file)
    if not site.fleet.alertmanager_urls and not delivery.notified(site, severity):
        click.echo(
            f"nobody is told of a {severity}: set receivers, notify.robots or fleet in {config_file or 'omniwatch.yaml'}"
        )
        ctx.exit(1)
    asking = partial(bridge.report, site.notify.url, BRIDGE_S) if trial_page.robots(site, severity) else None
    for one in alertmanager.of(site):
        beat_t = None
        if trial_page.is_hidden_by_heartbeat(site, severity) and one.beats():
            click.echo(f"{one.url}: waiting for a heartbeat, which counts as a webhook, too", err=True)
            beat_t = trial_page.heartbeat(one, time.time, time.sleep)
        click.echo(f"{one.url}: test alert sent", err=True)
        for found in trial_page.run(
            one, site, severity, within_s, time.time, time.sleep, beat_t=beat_t, bridge=asking
        ):
            taken.append(found)
            click.echo(_line(found, within_s))
    for who in delivery.notified(site, severity) if not site.fleet.alertmanager_urls else []:
        click.echo(f"{severity}s go to {who}", err=True)
    if not taken:
        click.echo(f"no receiver took it within {within_s:g} s")
    ctx.exit(0 if taken and all(found.after_s is not None for found in taken) else 1)


def _line(found: object, within_s: float) -> str:
    from omniwatch.bundle.trial_page import Taken

    assert isinstance(found, Taken)
    failed = f", {found.failed} attempts failed" if found.failed else ""
    error = f": {found.error}" if found.error else ""
    if found.refused_s is not None:
        return f"{found.who}: refused after {found.refused_s:.1f} s{error}"
    if found.after_s is None:
        return f"{found.who}: not taken within {within_s:g} s{failed}{error}"
    return f"{found.who}: taken after {found.after_s:.1f} s{failed}"
