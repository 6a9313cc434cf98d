"""Say of each bad turn of a recording what was bad, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, config_option, read_recording
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    pass


@click.command()
@click.option(
    "--file",
    "file",
    required=True,
    metavar="EVENTS",
    help="The recording: plain, .gz, or - for standard input.",
)
@config_option("The site's omniwatch.yaml: the round trip and the drift that page, the playout buffer.")
@click.option("--symptom", metavar="NAME", help="Show this symptom alone.")
@click.option("--cause", metavar="NAME", help="Show this cause alone.")
@click.option(
    "--stream", "slot", type=click.IntRange(min=0), metavar="SLOT", help="Show turns of this slot alone."
)
@click.option(
    "--client-buffer-ms",
    type=Number(min=0, min_open=True),
    metavar="MS",
    help="Speech that a client's buffer holds. A turn that runs further ahead has the symptom overrun.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: the whole record of each turn, with its verdicts."
)
def command(
    file: str,
    config_file: Path | None,
    symptom: str | None,
    cause: str | None,
    slot: int | None,
    client_buffer_ms: float | None,
    as_json: bool,
) -> None:
    """Judge each turn of the recording EVENTS, and print the bad ones, newest first, a line for each symptom.

    A line has the time in the recording, the stream's slot, symptom, cause, certainty and the excess in ms. The cause is seen
    where it explains 80 % of the excess, mostly it where it explains 50 %, else unknown.

    \b
    Symptoms: late, starved, skewed, silent, failed, overrun.
    Causes:   thinking, voice, warmup, load, stall, chunks, pace, network, listener,
              cut, camera, timestamps, server, ahead, unknown.

    Verdicts rest on events alone. The sidecar does not keep samples of the device yet. So a CPU quota, heat or a lack of memory
    is never named: mostly, it shows as thinking, voice, pace, chunks or stall.

    A verdict is a hint and can be wrong. docs/incidents.md says how often it is, on made-up incidents.

    \b
    Example:
      omniwatch explain --file incident.jsonl
      omniwatch explain --file incident.jsonl --symptom starved --json
    """
    from omniwatch import settings
    from omniwatch.desk.explain.table import TurnTable
    from omniwatch.desk.explain.text import Bad, Filter
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.text import no_event

    own = settings.load(config_file)
    _expect(symptom, cause)
    bad = Bad(Filter(symptom, cause, slot))
    table = TurnTable(own, bad.take, client_buffer_ms)
    recording = Recording(file)
    intake = Intake(recording)
    read_recording(recording, intake, table, "judging")
    table.finish()
    if table.first_t is None:
        raise UserError(no_event(file, sum(intake.counts.invalid.values())))
    if as_json:
        click.echo(json.dumps(bad.as_json(table.first_t), indent=2))
    else:
        click.echo(bad.report(table.first_t), nl=False)


def _expect(symptom: str | None, cause: str | None) -> None:
    """Refuse a symptom or a cause that no verdict can have. Raises UserError."""
    from omniwatch.desk.explain.verdict import CAUSES

    if symptom is not None and symptom not in CAUSES:
        raise UserError(f'--symptom: expected one of {", ".join(CAUSES)}, got "{symptom}"')
    causes = (
        CAUSES[symptom] if symptom else tuple(dict.fromkeys(name for own in CAUSES.values() for name in own))
    )
    if cause is not None and cause not in causes:
        of = f"a cause of {symptom}" if symptom else "a cause"
        raise UserError(f'--cause: expected {of}, one of {", ".join(causes)}, got "{cause}"')
