"""Draw both curves of a recorded event file, and when CodecDrift and TokenRTT would have fired."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, os_error


@click.command()
@click.argument("file", metavar="FILE")
@config_option("The site's omniwatch.yaml: its thresholds and intervals.")
@click.option(
    "--out",
    "picture",
    metavar="FILE.svg|png",
    required=True,
    type=click.Path(path_type=Path),
    help="The picture to write.",
)
def command(file: str, config_file: Path | None, picture: Path) -> None:
    """Draw both curves of FILE (plain, .gz, or - for standard input), their thresholds, and when the two rules would fire.

    The curves and times are those that `omniwatch replay` prints. It needs matplotlib (omniwatch[plot]).

    \b
    Example:
      omniwatch curves events.jsonl --out drift.svg
    """
    from omniwatch.cli.replay import replayed
    from omniwatch.desk.plotting import check_target, curves

    check_target(picture)
    replay, _ = replayed(file, config_file)
    try:
        curves.write(replay, picture, "standard input" if file == "-" else Path(file).name)
    except OSError as error:
        raise os_error(error) from error
    click.echo(f"drawn: {picture}", err=True)
