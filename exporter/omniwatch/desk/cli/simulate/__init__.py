"""Write the events of a simulated server, or serve the metrics of a simulated fleet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, shows_progress
from omniwatch.desk.cli.simulate.fleet import PROGRESS_S, fleet
from omniwatch.system.closest import closest
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.simulation import Scenario
    from omniwatch.events import Event


def _speed(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Read a factor of real time; 0 stands for as fast as it goes."""
    try:
        speed = 0.0 if text == "max" else float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise UserError(f'--speed: expected a number >= 0 or "max", got {text!r}')
    return speed


@click.group(invoke_without_command=True, subcommand_metavar="[fleet ...]")
@click.option("--scenario", "name", metavar="NAME", help="What happens; --list shows the choices.")
@click.option("--seed", default=1, show_default=True, help="Same scenario and seed: same events.")
@click.option(
    "--speed",
    callback=_speed,
    default="1",
    show_default=True,
    metavar="X",
    help='Times real time; 0 or "max": no pauses.',
)
@click.option(
    "--duration",
    "duration_s",
    type=Number(min=0, min_open=True),
    metavar="S",
    help="Seconds of events. Default: without end, but with --speed max the scenario's own length.",
)
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="Append to FILE instead of printing."
)
@click.option(
    "--rotate-bytes",
    type=click.IntRange(min=4096),
    default=16 * 2**20,
    show_default=True,
    metavar="N",
    help="Rotate FILE past this size to FILE.1, FILE.2.",
)
@click.option(
    "--fault-at", "fault_at_s", type=Number(0), metavar="S", help="Begin the scenario's fault then."
)
@click.option("--mend-at", "mended_at_s", type=Number(0), metavar="S", help="End the scenario's fault then.")
@click.option(
    "--start-time",
    "start_t",
    type=Number(0),
    metavar="EPOCH_S",
    help="Time of the first event, default now.",
)
@click.option("--list", "as_list", is_flag=True, help="Show the scenarios and what each should look like.")
@click.option("--quiet", is_flag=True, help="Show no progress, on a terminal neither.")
@click.pass_context
def command(
    ctx: click.Context,
    name: str | None,
    seed: int,
    speed: float,
    duration_s: float | None,
    out: Path | None,
    rotate_bytes: int,
    fault_at_s: float | None,
    mended_at_s: float | None,
    start_t: float | None,
    as_list: bool,
    quiet: bool,
) -> None:
    """Write what a sliced-model server would write while something happens to it.

    Scenarios are steady speech, a voice that drifts away, a reconnect, late answers and others (see --list).

    Events come in real time, or faster, until ctrl-C; when the scenario's script is over, speech goes on in good health.
    With --out, lines are numbered and the file is rotated, as a server would; a FILE that is there is added to. Without,
    they go to standard output.

    The command fleet serves the metrics of a fleet instead.

    \b
    Example:
      omniwatch simulate --scenario reconnect-jump --out /run/omniwatch/events.jsonl
      omniwatch simulate --scenario steady | omniwatch exporter -
      omniwatch simulate --scenario overload --speed max --start-time 0 > overload.jsonl
    """
    if ctx.invoked_subcommand:
        _refuse_before_fleet(ctx)
        return
    from omniwatch.desk import simulation
    from omniwatch.desk.simulation.realtime import paced

    if as_list:
        click.echo("\n".join(map(_described, simulation.SCENARIOS.values())))
        return
    scenario = _chosen(name)
    if fault_at_s is not None or mended_at_s is not None:
        scenario = scenario.moved(fault_at_s, mended_at_s)
    if duration_s is None and speed == 0:
        duration_s = scenario.duration_s
    begin_t = time.time() if start_t is None else start_t
    events = paced(simulation.events(scenario, seed, begin_t, duration_s), speed)
    if shows_progress() and not quiet and not (out is None and sys.stdout.isatty()):
        events = _with_progress(events, scenario, begin_t, duration_s)
    try:
        with ExitStack() as ending:
            write = _printer(ending, speed) if out is None else _spooler(ending, out, rotate_bytes)
            for event in events:
                write(event)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # Python would try to flush standard output once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UserError(f"{error.filename or out or 'standard output'}: {error.strerror}") from error


def _refuse_before_fleet(ctx: click.Context) -> None:
    for param in ctx.command.params:
        if ctx.get_parameter_source(param.name or "") is not click.core.ParameterSource.DEFAULT:
            raise UserError(f"{param.opts[0]}: not before fleet, whose options come after it")


def _chosen(name: str | None) -> Scenario:
    from omniwatch.desk.simulation import SCENARIOS

    choices = ", ".join(SCENARIOS)
    if name is None:
        raise UserError(f"which --scenario? One of {choices}")
    if name not in SCENARIOS:
        close = closest(name, SCENARIOS)
        hint = f"; the closest is {close!r}" if close else ""
        raise UserError(f"no scenario {name!r}{hint}; there are {choices}")
    return SCENARIOS[name]


def _described(scenario: Scenario) -> str:
    script = f"{scenario.duration_s:g} s"
    if scenario.fault_at_s is not None:
        script += f", fault from {scenario.fault_at_s:g} s"
        script += "" if scenario.mended_at_s is None else f" to {scenario.mended_at_s:g} s"
    script += f", {scenario.alert} must fire" if scenario.alert else ", no page"
    summary = click.wrap_text(scenario.summary, 100, initial_indent="  ", subsequent_indent="  ")
    return f"{click.style(scenario.name, bold=True)}  ({script})\n{summary}"


def _printer(ending: ExitStack, speed: float) -> Callable[[Event], None]:
    """Lines to standard output: each at once, or in blocks where nobody waits for the next."""
    from omniwatch.events import encode

    lines = sys.stdout.buffer
    ending.callback(lines.flush)

    def write(event: Event) -> None:
        lines.write(encode(event))
        if speed:
            lines.flush()

    return write


def _spooler(ending: ExitStack, out: Path, rotate_bytes: int) -> Callable[[Event], None]:
    from omniwatch.tap.spool import Spool

    spool = Spool(out, max_bytes=rotate_bytes)
    ending.callback(spool.close)
    return spool.write


def _with_progress(
    events: Iterator[Event], scenario: Scenario, begin_t: float, duration_s: float | None
) -> Iterator[Event]:
    """Tell on the terminal how far it is, twice a second and at the end."""
    length_s = duration_s or scenario.duration_s
    count, at_s, next_at = 0, 0.0, 0.0

    def tell() -> None:
        state = "fault" if scenario.is_faulty(at_s) else "healthy"
        line = f"{scenario.name}  {int(at_s)} of {length_s:.0f} s  {count} events  {state}"
        click.echo(f"\r{line}\x1b[K", nl=False, err=True)

    try:
        for event in events:
            yield event
            count, at_s = count + 1, event.t - begin_t
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + PROGRESS_S
                tell()
    finally:
        tell()
        click.echo(err=True)


command.add_command(fleet)
