"""Relay connections over a mobile network that is made up, by a seed."""

from __future__ import annotations

import click

from omniwatch.cli import UserError


@click.command()
@click.option("--to", "server", metavar="HOST:PORT", help="The server.")
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True, help="Where clients connect."
)
@click.option(
    "--scenario", metavar="NAME|FILE", default="4g-10pct", show_default=True, help="What the network is like."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed is the same network.")
@click.option("--list", "as_list", is_flag=True, help="Name the scenarios there are.")
def command(server: str | None, listen: str, scenario: str, seed: int, as_list: bool) -> None:
    """Stand between clients and a server as a mobile network would, in user space and without privileges.

    What is sent arrives late; lost packets hold up what is behind them, as TCP does; nothing passes in outages and
    handovers; connections are cut, with a word (reset) or without one. A scenario with `frames` drops, repeats and reorders
    single frames of an answer in frames. Each change of the network is one line on standard error; SIGINT or SIGTERM ends it.

    \b
    Example:
      omniwatch link --to 127.0.0.1:8000 --listen 127.0.0.1:9000 --scenario tunnel --seed 7
    """
    import asyncio

    from omniwatch.link import path
    from omniwatch.link import scenario as scenarios
    from omniwatch.link.serve import Address, address, serve

    try:
        if as_list:
            for name in scenarios.names():
                click.echo(f"{name:14} {' '.join(scenarios.load(name).about.split())}")
            return
        if server is None:
            raise click.UsageError("--to HOST:PORT: where is the server?")
        link = path.Link(scenarios.load(scenario), seed)

        def ready(at: Address) -> None:
            click.echo(f"listening on {at}, relaying to {server}: {scenario}, seed {seed}", err=True)

        def tell(now: float, happening: path.Happening, dead: int) -> None:
            lasts = f" for {happening.for_s:.2f} s" if happening.for_s else ""
            cut = f", {dead} connections {happening.cut}" if happening.cut else ""
            click.echo(f"{now:10.3f} {happening.why}{lasts}{cut}", err=True)

        relay = asyncio.run(serve(address(listen), address(server), link, ready, tell))
    except (scenarios.ScenarioError, ValueError) as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"{listen}: {error.strerror or error}") from error
    carried = relay.carried
    click.echo(
        f"{relay.connections} connections, {carried['up']} bytes up, {carried['down']} bytes down", err=True
    )
