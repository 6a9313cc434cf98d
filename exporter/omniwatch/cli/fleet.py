"""Tell the centre that this device goes off; at the centre, list the devices and show how they all do."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch import cli
from omniwatch.cli import config_option


class _Commands(click.Group):
    """The command of this file, and those of the centre where they are there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *cli.of_parts("fleet")])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := cli.of_parts("fleet").get(cmd_name):
            return cli.imported(module)
        # A shell that completes a line is told nothing.
        if not ctx.resilient_parsing:
            cli.refuse_absent("fleet", cmd_name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands)
def command() -> None:
    """Tell the centre that this device goes off; at the centre, list the devices and show how they all do.

    The centre is the machine whose fleet.centre is true. Its commands read a fleet file, which says what devices there are.

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
