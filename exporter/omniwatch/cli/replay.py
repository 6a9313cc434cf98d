"""Run a recorded event file in event time: what it held, and when each rule would have fired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import config_option, read_recording
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("file", metavar="FILE")
@config_option("The site's omniwatch.yaml: its thresholds and intervals.")
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print what /metrics would show at the end instead."
)
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE.svg|png",
    type=click.Path(path_type=Path),
    help="Draw both curves, the thresholds and when the rules would fire.",
)
def command(file: str, config_file: Path | None, as_metrics: bool, plot_file: Path | None) -> None:
    """Run FILE (plain, .gz, or - for standard input) through the sidecar's own counting, and print what each stream had.

    That is its turns and frames, both curves, and when CodecDrift and TokenRTT would have been pending and firing.

    It takes a second and needs nothing else: these two rules only, as the settings have them.

    Rules are evaluated as Prometheus would with the settings' intervals: samples each scrape, evaluations at whole
    multiples of the interval. A real server's evaluations may fall up to one interval later.

    \b
    Example:
      omniwatch replay events.jsonl --plot drift.svg
      cat events.jsonl.2 events.jsonl.1 events.jsonl | omniwatch replay -
    """
    from omniwatch import plotting, settings
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay import Replay, plot
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.text import exposition, no_event, report

    try:
        if plot_file is not None:
            plotting.check_target(plot_file)
        replay = Replay(settings.load(config_file))
        recording = Recording(file)
        intake = Intake(recording)
        read_recording(recording, intake, replay, "replaying")
        replay.finish()
        if not replay.tracks:
            raise UserError(no_event(file, sum(intake.counts.invalid.values())))
        if plot_file is not None:
            plot.write(replay, plot_file, "standard input" if file == "-" else Path(file).name)
    except OSError as error:
        raise UserError(f"{plot_file}: {error.strerror}") from error
    click.echo(exposition(replay, intake) if as_metrics else report(replay, intake), nl=False)
    if plot_file is not None:
        click.echo(f"drawn: {plot_file}", err=True)
