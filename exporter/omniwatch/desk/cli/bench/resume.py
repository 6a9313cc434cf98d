"""Measure every return of a client that lost its connection, over made-up networks."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import Number, os_error
from omniwatch.system import atomic_write

SCENARIOS = ("4g-10pct", "4g-bursty", "highway-120", "tunnel")


@click.command()
@click.option(
    "--scenario",
    "names",
    metavar="NAME|FILE",
    multiple=True,
    default=SCENARIOS,
    show_default=True,
    help="A network (see omniwatch link --list); repeatable.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=4, show_default=True, help="Runs of each network."
)
@click.option(
    "--minutes", type=Number(0.1, 10_000), default=30, show_default=True, help="Length of each run."
)
@click.option(
    "--speed",
    type=Number(0.5, 100),
    default=2.0,
    show_default=True,
    help="How much faster than it is heard speech is made.",
)
@click.option(
    "--congestion",
    type=click.Choice(["cubic", "reno", "bbr"]),
    default="cubic",
    show_default=True,
    help="Congestion control of both ends.",
)
@click.option(
    "--codec",
    type=click.Choice(["pcm16", "opus"]),
    default="pcm16",
    show_default=True,
    help="Bytes that speech takes: those of PCM, or those of Opus.",
)
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write all figures, as JSON.")
@click.option(
    "--markdown", "markdown_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the table."
)
def resume(
    names: tuple[str, ...],
    seeds: int,
    minutes: float,
    speed: float,
    congestion: str,
    codec: str,
    out: Path | None,
    markdown_file: Path | None,
) -> None:
    """Hear speech over made-up mobile networks and measure every return of a client that lost its connection.

    Time is virtual: nothing is waited for, and the same seeds give the same figures. The table goes to standard output.

    \b
    Example:
      omniwatch bench resume --scenario 4g-10pct --seeds 3 --congestion bbr --out resume.json
    """
    import json
    import sys
    import time

    from omniwatch.desk.link import scenario as scenarios
    from omniwatch.desk.link.measure import Run, measure
    from omniwatch.desk.link.summary import markdown, summarise

    networks = {name: scenarios.load(name) for name in names}
    began = time.monotonic()
    jobs = [(name, seed) for name in networks for seed in range(1, seeds + 1)]
    runs: dict[str, list[Run]] = {name: [] for name in networks}
    with click.progressbar(length=1000 * len(jobs), label="resumption", file=sys.stderr) as bar:
        for number, (name, seed) in enumerate(jobs):

            def step(share: float, number: int = number) -> None:
                bar.update(int(1000 * (number + share)) - bar.pos)

            bar.label = f"{name}, seed {seed}"
            run = measure(
                name,
                networks[name],
                seed,
                minutes,
                speed=speed,
                congestion=congestion,
                codec=codec,
                step=step,
            )
            runs[name].append(run)
    rows = [summarise(found) for found in runs.values()]
    took_s = time.monotonic() - began
    table = markdown(rows, speed=speed, took_s=took_s, congestion=congestion, codec=codec)
    figures = {
        "virtual_time": True,
        "speed": speed,
        "congestion": congestion,
        "codec": codec,
        "took_s": round(took_s, 1),
        "scenarios": rows,
    }
    click.echo(table, nl=False)
    try:
        for path, text in ((out, json.dumps(figures, indent=2) + "\n"), (markdown_file, table)):
            if path:
                atomic_write.replace(path, text.encode())
    except OSError as error:
        raise os_error(error) from error
