"""Say of each bad turn what was bad, and why."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniwatch.cli import NO_SAMPLES, config_option, device_samples, read_recording
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.explain.text import Bad
    from omniwatch.settings import Settings

PAGE_S, PAGE_BYTES = 5.0, 2 * 2**20
"""Seconds to wait for the sidecar's answer, and its most bytes."""


@click.command()
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[TURN]")
@click.option(
    "--file", "file", metavar="EVENTS", help="Judge a recording: plain, .gz, or - for standard input."
)
@click.option(
    "--device",
    "device_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Samples of the device for --file. [default: device.jsonl beside EVENTS, or as the sidecar keeps it]",
)
@config_option("The site's omniwatch.yaml: where the sidecar is, what is bad, the playout buffer.")
@click.option(
    "--since",
    "since",
    metavar="DURATION",
    help="Show turns that began so long ago or later, such as 90s or 1h30m. [default: 1h; of a recording: all]",
)
@click.option("--symptom", metavar="NAME", help="Show this symptom alone.")
@click.option("--cause", metavar="NAME", help="Show this cause alone.")
@click.option(
    "--stream", "slot", type=click.IntRange(min=0), metavar="SLOT", help="Show turns of this slot alone."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: the whole record of each turn, with its verdicts."
)
def command(
    number: int | None,
    file: str | None,
    device_file: Path | None,
    config_file: Path | None,
    since: str | None,
    symptom: str | None,
    cause: str | None,
    slot: int | None,
    as_json: bool,
) -> None:
    """Print the bad turns of the last hour, newest first, a line for each symptom; with TURN, the course of that turn.

    They are the sidecar's, which forgets them at a restart. With --file they are those of a recording.

    A line has the turn's number, its time, the stream's slot, symptom, cause, certainty and the excess in ms. The cause is seen
    where it explains 80 % of the excess, mostly it where it explains 50 %, else unknown.

    \b
    Symptoms: late, starved, skewed, silent, failed, overrun.
    Causes:   thinking, voice, warmup, load, quota, heat, memory, stall, chunks, pace,
              network, listener, cut, camera, timestamps, server, ahead, unknown.

    A verdict is a hint and can be wrong. docs/incidents.md says how often it is, on made-up incidents.

    \b
    Example:
      omniwatch explain
      omniwatch explain --since 10m --symptom starved
      omniwatch explain 17
      omniwatch explain --file incident.jsonl --symptom starved --json
    """
    from omniwatch import settings
    from omniwatch.explain.text import Bad, Filter, waterfall

    own = settings.load(config_file)
    _expect(symptom, cause)
    if device_file is not None and file is None:
        raise UserError("--device: samples are for a recording: give --file as well")
    since_t = None if file and since is None else time.time() - _seconds(since or "1h")
    bad = Bad(Filter(symptom, cause, slot, since_t), number)
    first_t = None
    if file is None:
        _ask(own, bad)
    else:
        first_t = _judge(own, bad, file, device_file)
    if number is None:
        click.echo(json.dumps(bad.as_json(first_t), indent=2) if as_json else bad.report(first_t), nl=as_json)
    elif bad.one is None:
        raise UserError(f"no judged turn {number} is known; without a number, the bad ones are listed")
    elif as_json:
        click.echo(json.dumps(bad.one, indent=2))
    else:
        lines, player, evidence = waterfall(bad.one, own.streams.playout_buffer_ms / 1000, first_t)
        gaps = "".join(click.style(sign, fg="red") if sign == "\u2591" else sign for sign in player)
        click.echo("\n".join([*lines, gaps, *evidence, *_what_to_do(bad.one)]))


def _what_to_do(turn: dict[str, Any]) -> list[str]:
    """Return the runbooks' sections for the turn's causes. A cause has the same text in each runbook."""
    from omniwatch.bundle import data
    from omniwatch.explain.text import RUNBOOKS

    pages = {verdict["cause"]: RUNBOOKS.get(verdict["symptom"]) for verdict in turn["verdicts"]}
    lines = []
    for cause, name in pages.items():
        path = data.root() / "runbooks" / f"{name}.md"
        _, found, after = (path.read_text(encoding="utf-8") if name else "").partition(f"\n### {cause}\n")
        if found:
            # Its end: the next heading of the page.
            text = re.split(r"(?m)^##", after)[0].strip()
            lines += ["", f"What to do about {cause} ({name}):", "", text]
    return lines


def _ask(own: Settings, bad: Bad) -> None:
    """Take the turns of the sidecar. Raises UserError."""
    from omniwatch.system import http

    url = f"http://{own.site.exporter}/turns.json"
    try:
        with http.ask(url, timeout_s=PAGE_S) as answer:
            if not answer.ok:
                raise UserError(f"{url}: status {answer.status}")
            found: dict[str, Any] = json.loads(answer.read(PAGE_BYTES))
        for turn in found["turns"]:
            bad.take(turn)
        bad.judged = found["turns_judged"]
    except http.HttpError as error:
        raise UserError(f"{url}: {error}; --file judges a recording") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{url}: not the turns of a sidecar") from error


def _judge(own: Settings, bad: Bad, file: str, device_file: Path | None) -> float:
    """Take the turns of a recording; return when it began. Raises UserError."""
    from omniwatch.explain.kept import shown
    from omniwatch.ingest.intake import Intake
    from omniwatch.replay.recording import Recording
    from omniwatch.replay.table import RecordedTable

    recording = Recording(file)
    samples = device_samples(file, device_file)
    if not samples:
        click.echo(NO_SAMPLES, err=True)
    table = RecordedTable(own, lambda judged: bad.take(shown(judged)), samples)
    read_recording(recording, Intake(recording), table, "judging")
    return table.first_t


def _seconds(since: str) -> float:
    """Return how long ago that is. Raises UserError."""
    from omniwatch.bundle import durations

    found = durations.seconds(since.removeprefix("-"), fractions=True)
    if not found:
        raise UserError(f'--since: expected a duration such as 90s or 1h30m, got "{since}"')
    return found


def _expect(symptom: str | None, cause: str | None) -> None:
    """Refuse a symptom or a cause that no verdict can have. Raises UserError."""
    from omniwatch.core.verdict import CAUSES

    if symptom is not None and symptom not in CAUSES:
        raise UserError(f'--symptom: expected one of {", ".join(CAUSES)}, got "{symptom}"')
    causes = (
        CAUSES[symptom] if symptom else tuple(dict.fromkeys(name for own in CAUSES.values() for name in own))
    )
    if cause is not None and cause not in causes:
        of = f"a cause of {symptom}" if symptom else "a cause"
        raise UserError(f'--cause: expected {of}, one of {", ".join(causes)}, got "{cause}"')
