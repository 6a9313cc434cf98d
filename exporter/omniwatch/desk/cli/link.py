"""Relay connections over a simulated mobile network."""

from __future__ import annotations

import click

from omniwatch.system.errors import UserError


@click.command()
@click.option("--to", "server", metavar="HOST:PORT", help="The server.")
@click.option(
    "--web.listen-address",
    "listen",
    metavar="ADDRESS",
    default="127.0.0.1:0",
    show_default=True,
    help="Where clients connect.",
)
@click.option(
    "--scenario", metavar="NAME|FILE", default="4g-10pct", show_default=True, help="Scenario of the network."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed is the same network.")
@click.option(
    "--congestion",
    type=click.Choice(["cubic", "reno", "bbr"]),
    default="cubic",
    show_default=True,
    help="Congestion control of the made-up TCP.",
)
@click.option("--list", "as_list", is_flag=True, help="Name the scenarios there are.")
def command(
    server: str | None, listen: str, scenario: str, seed: int, congestion: str, as_list: bool
) -> None:
    """Stand between clients and a server as a mobile network would, in user space and without privileges.

    Data arrives late. Lost packets delay those behind them and narrow the window, as with TCP. Nothing passes in outages.
    Connections are cut, with a reset or silently. A scenario with `frames` drops, repeats and reorders single frames of an
    answer in frames. Each change of the network is one line on standard error; SIGINT or SIGTERM ends it.

    \b
    Example:
      omniwatch link --to 127.0.0.1:8000 --web.listen-address 127.0.0.1:9000 --scenario tunnel --seed 7
    """
    import asyncio

    from omniwatch.desk.link import path
    from omniwatch.desk.link import scenario as scenarios
    from omniwatch.desk.link.serve import Address, address, serve

    try:
        if as_list:
            for name in scenarios.names():
                click.echo(f"{name:14} {' '.join(scenarios.load(name).about.split())}")
            return
        if server is None:
            raise click.UsageError("--to HOST:PORT: where is the server?")
        link = path.Link(scenarios.load(scenario), seed, congestion)
        if link.scenario.frames:
            # It parses HTTP as the client does: without the client's libraries, say so before anything is relayed.
            import omniwatch.client  # noqa: F401  imported for its check

        def ready(at: Address) -> None:
            click.echo(
                f"listening on {at}, relaying to {server}: {scenario}, seed {seed}, {congestion}", err=True
            )

        def tell(now: float, happening: path.Blackout, dead: int) -> None:
            lasts = f" for {happening.for_s:.2f} s" if happening.for_s else ""
            cut = f", {dead} connections {happening.cut}" if happening.cut else ""
            click.echo(f"{now:10.3f} {happening.why}{lasts}{cut}", err=True)

        relay = asyncio.run(serve(address(listen), address(server), link, ready, tell))
    except OSError as error:
        raise UserError(f"{listen}: {error.strerror or error}") from error
    carried = relay.carried
    click.echo(
        f"{relay.connections} connections, {carried['up']} bytes up, {carried['down']} bytes down", err=True
    )
