"""Try how a page reaches people."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import Number, config_option
from omniwatch.system.errors import UserError


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

    It goes to site.alertmanager, or to fleet.alertmanager_urls: to each of them. What a receiver took is read from Alertmanager's own
    counters; a webhook that took it is the bridge to chat robots where that is configured. A heartbeat is a webhook, too: where the
    settings have one, the test begins just after it, at most a minute later. The alert ends with the command.

    The exit code is 0 when every receiver of the settings took it, 1 when one did not, 2 when Alertmanager is not reached.

    \b
    Example:
      omniwatch page --test --config.file /etc/omniwatch/omniwatch.yaml
    """
    import time
    from typing import cast

    from omniwatch import settings
    from omniwatch.bundle import alertmanager, delivery, trial_page
    from omniwatch.settings.receivers import Severity

    if not is_test:
        raise click.UsageError("say --test: a page is sent to people.")
    severity = cast(Severity, severity)
    within_s = within_s or (30 if severity == "page" else 60)
    taken = []
    site = settings.load(config_file)
    if not site.fleet.alertmanager_urls and not trial_page.expected(site, severity):
        raise UserError(f"receivers: nobody is told of a {severity}; there is nothing to test")
    for one in alertmanager.of(site):
        beat_t = None
        if trial_page.is_hidden_by_heartbeat(site, severity):
            click.echo(f"{one.url}: waiting for a heartbeat, which counts as a webhook, too", err=True)
            beat_t = trial_page.heartbeat(one, time.time, time.sleep)
        click.echo(f"{one.url}: test alert sent", err=True)
        for found in trial_page.run(one, site, severity, within_s, time.time, time.sleep, beat_t):
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
    if found.after_s is None:
        return f"{found.integration}: not taken within {within_s:g} s{failed}"
    return f"{found.integration}: taken after {found.after_s:.1f} s{failed}"
