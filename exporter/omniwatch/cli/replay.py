"""Run a recorded event file in event time: what it held, and when each rule would have fired."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import NO_SAMPLES, config_option, device_samples, read_recording, web_options

if TYPE_CHECKING:
    from omniwatch.core.samples import Sample
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay import Replay
    from omniwatch.settings import Settings


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--device",
    "device_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Samples of the device. [default: device.jsonl beside FILE, or as the sidecar keeps it]",
)
@config_option("The site's omniwatch.yaml: its thresholds and intervals.")
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print what /metrics would show at the end instead."
)
@click.option("--serve", "is_served", is_flag=True, help="Show it on the live page until Ctrl-C instead.")
@web_options("127.0.0.1:0")
def command(
    file: str,
    device_file: Path | None,
    config_file: Path | None,
    as_metrics: bool,
    is_served: bool,
    listen: tuple[str, ...],
    web_config: Path | None,
) -> None:
    """Run FILE (plain, .gz, or - for standard input) through the sidecar's own counting, and print what each stream had.

    That is its turns and frames, both curves, and when CodecDrift and TokenRTT would have been pending and firing.

    It takes a second and needs nothing else: these two rules only, as the settings have them.

    Where turns were bad, it says how many and why. Each symptom and cause is a line, with its share of the bad turns. Without
    samples of the device no quota, heat or memory is named.

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

    samples = device_samples(file, device_file)
    if is_served:
        if as_metrics:
            raise click.UsageError("--serve: shows a page, so --metrics does not go with it")
        from omniwatch import settings

        _serve(settings.load(config_file), file, samples, listen, web_config)
        return
    replay, intake = replayed(file, config_file, samples)
    if as_metrics:
        click.echo(exposition(replay, intake), nl=False)
        return
    replay.hear_out()
    click.echo(report(replay, intake), nl=False)
    if replay.turns_bad and not samples:
        click.echo(f"\n{NO_SAMPLES}")


def replayed(file: str, config_file: Path | None, samples: Iterable[Sample] = ()) -> tuple[Replay, Intake]:
    """Read a recording to its end, with the settings of a file. Raises UserError, where there is no event in it too."""
    from omniwatch import settings
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay import Replay
    from omniwatch.replay.recording import Recording

    replay = Replay(settings.load(config_file), samples)
    recording = Recording(file)
    intake = Intake(recording)
    read_recording(recording, intake, replay, "replaying")
    return replay, intake


def _serve(
    own: Settings, file: str, samples: list[Sample], listen: tuple[str, ...], web_config: Path | None
) -> None:
    """Show the recording on the live page until Ctrl-C. Raises UserError."""
    import threading

    from prometheus_client import CollectorRegistry

    from omniwatch.bundle import data
    from omniwatch.explain.kept import KeptTurns
    from omniwatch.live.recorded import ReadAtOnce, Recorded
    from omniwatch.replay.recording import Recording
    from omniwatch.web import Pages, make_app
    from omniwatch.web.server import serve

    recording = Recording(file)
    intake, kept = ReadAtOnce(recording), KeptTurns()
    name = "standard input" if file == "-" else Path(file).name
    recorded = Recorded(own, name, intake, kept.take, samples)
    read_recording(recording, intake, recorded, "replaying")
    buffer_s = own.streams.playout_buffer_ms / 1000
    if not samples:
        click.echo(NO_SAMPLES, err=True)
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
