"""Run a recorded event file in event time: what it held, and when each rule would have fired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import config_option, read_recording, web_options
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay import Replay
    from omniwatch.settings import Settings


@click.command()
@click.argument("file", metavar="FILE")
@config_option("The site's omniwatch.yaml: its thresholds and intervals.")
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print what /metrics would show at the end instead."
)
@click.option("--serve", "is_served", is_flag=True, help="Show it on the live page until Ctrl-C instead.")
@web_options("127.0.0.1:0")
def command(
    file: str,
    config_file: Path | None,
    as_metrics: bool,
    is_served: bool,
    listen: tuple[str, ...],
    web_config: Path | None,
) -> None:
    """Run FILE (plain, .gz, or - for standard input) through the sidecar's own counting, and print what each stream had.

    That is its turns and frames, both curves, and when CodecDrift and TokenRTT would have been pending and firing.

    It takes a second and needs nothing else: these two rules only, as the settings have them.

    Rules are evaluated as Prometheus would with the settings' intervals: samples each scrape, evaluations at whole
    multiples of the interval. A real server's evaluations may fall up to one interval later.

    With --serve a browser shows the live page as it was at any second, by a slider. It prints the page's address. Port 0 is any
    free one. Of more than 8 hours, every second moment is kept, or every fourth, and so on.

    \b
    Example:
      omniwatch replay events.jsonl
      cat events.jsonl.2 events.jsonl.1 events.jsonl | omniwatch replay -
      omniwatch replay events.jsonl --serve
    """
    from omniwatch.replay.text import exposition, report

    if is_served:
        if as_metrics:
            raise click.UsageError("--serve: shows a page, so --metrics does not go with it")
        from omniwatch import settings

        _serve(settings.load(config_file), file, listen, web_config)
        return
    replay, intake = replayed(file, config_file)
    click.echo(exposition(replay, intake) if as_metrics else report(replay, intake), nl=False)


def replayed(file: str, config_file: Path | None) -> tuple[Replay, Intake]:
    """Read a recording to its end, with the settings of a file. Raises UserError, where there is no event in it too."""
    from omniwatch import settings
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay import Replay
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.text import no_event

    replay = Replay(settings.load(config_file))
    recording = Recording(file)
    intake = Intake(recording)
    read_recording(recording, intake, replay, "replaying")
    replay.finish()
    if not replay.tracks:
        raise UserError(no_event(file, sum(intake.counts.invalid.values())))
    return replay, intake


def _serve(own: Settings, file: str, listen: tuple[str, ...], web_config: Path | None) -> None:
    """Show the recording on the live page until Ctrl-C. Raises UserError."""
    import threading

    from prometheus_client import CollectorRegistry

    from omniwatch.bundle import data
    from omniwatch.explain.kept import KeptTurns
    from omniwatch.live.recorded import ReadAtOnce, Recorded
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.text import no_event
    from omniwatch.sidecar import device_log
    from omniwatch.web import Pages, make_app
    from omniwatch.web.server import serve

    recording = Recording(file)
    intake, kept = ReadAtOnce(recording), KeptTurns()
    beside = Path(file).with_name(device_log.NAME)
    device = list(device_log.read(beside)) if file != "-" and beside.exists() else []
    name = "standard input" if file == "-" else Path(file).name
    recorded = Recorded(own, name, intake, kept.take, device)
    read_recording(recording, intake, recorded, "replaying")
    recorded.finish()
    if recorded.first_t is None:
        raise UserError(no_event(file, sum(intake.counts.invalid.values())))
    buffer_s = own.streams.playout_buffer_ms / 1000
    said = (True, f"{name} is shown")
    pages = Pages(
        CollectorRegistry(),
        list,
        lambda: kept.page(recorded.totals.turns_judged),
        lambda number: kept.one(number, buffer_s),
        recorded.packed,
        *(lambda: said, lambda: said, lambda: said),
        runbooks=data.root() / "runbooks",
    )
    with serve(listen, make_app(pages), web_config) as server:
        for url in server.urls:
            click.echo(url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return
