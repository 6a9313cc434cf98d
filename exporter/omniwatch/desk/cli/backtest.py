"""Run a recorded event file against alert rules in a real Prometheus: when each rule would have fired."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniwatch.cli import hear_verbose, settings_option, shows_progress
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.backtest.run import Findings, Progress, Side


@click.command()
@click.argument("file", metavar="FILE")
@settings_option("The site's omniwatch.yaml: its thresholds, intervals and rules.")
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A Prometheus rule file to use in place of the settings' rules. May be given again.",
)
@click.option(
    "--against",
    metavar="RULES|SETTINGS",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Compare with the rules of another omniwatch.yaml, or with rule files; these may be given again.",
)
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE.svg|png",
    type=click.Path(path_type=Path),
    help="Draw both curves, and for each alert when it was pending and firing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every rule, every alert, all times.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    callback=hear_verbose,
    help="Name the rules of which the recording cannot say anything, and why. Say which configuration file is read.",
)
def command(
    file: str,
    config_file: Path | None,
    rule_files: tuple[Path, ...],
    against: tuple[Path, ...],
    plot_file: Path | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print what every alert rule would have done over the events in FILE (plain, .gz, or - for standard input).

    The sidecar runs in event time, and a real Prometheus is given what it would have shown at each scrape. Printed is when
    each alert was pending, firing and over, and its worst value. What Alertmanager would have sent to each receiver follows.

    Rules are those that the settings render, or those of --rules. Evaluations fall on whole multiples of their interval;
    a real server's may fall up to one interval later. Rules that a backtest cannot judge are listed apart. They are about
    the device, the model server's own metrics, the sidecar's health or whether a target is up: no event file holds that.

    With --against, the differences between two rule sets follow: what fires earlier, later, or with one of them only.

    `omniwatch replay` needs no Prometheus: it prints the streams' curves and what CodecDrift and TokenRTT would have done.

    Needs prometheus and promtool. All is done in a temporary directory, which is removed.

    \b
    Example:
      omniwatch backtest events.jsonl --plot alerts.svg
      omniwatch backtest events.jsonl --against stricter.yaml
      omniwatch backtest incident.jsonl.gz --rules new.rules.yaml --json
    """
    from omniwatch import settings
    from omniwatch.desk import plotting
    from omniwatch.desk.backtest import compare, json_report, picture, rule_sets, site, text_report, tsdb
    from omniwatch.replay.recording import Recording

    before = signal.signal(signal.SIGTERM, _end)
    try:
        if plot_file is not None:
            plotting.check_target(plot_file)
        own = settings.load(config_file)
        _expect_rules(rule_files)
        other, files = rule_sets.classify(against)
        if file != "-":
            Recording(file).close()
        tsdb.tool("prometheus")
        name = rule_sets.title(rule_files or [path for path in (config_file,) if path])
        with tempfile.TemporaryDirectory(prefix="omniwatch-backtest-") as temporary:
            directory = Path(temporary)
            bundle = site.rendered(own, directory / "bundle-1")
            chosen = [rule_sets.side(name, own, bundle, rule_files)]
            if against:
                if other is not None:
                    bundle = site.rendered(other, directory / "bundle-2")
                chosen.append(rule_sets.side(rule_sets.title(against), other or own, bundle, files))
            found = _run(_spooled(file, directory), file, chosen, directory, plot_file is not None)
        if plot_file is not None:
            picture.write(found, plot_file, "standard input" if file == "-" else Path(file).name)
    except OSError as error:
        raise UserError(f"{error.filename or plot_file}: {error.strerror}") from error
    finally:
        signal.signal(signal.SIGTERM, before)
    compared = compare.compare(*found) if against else None
    if as_json:
        findings: dict[str, Any] = json_report.facts(found[0])
        if compared is not None:
            findings |= {
                "against": json_report.facts(found[1]),
                "differences": json_report.differences(compared),
            }
        click.echo(json.dumps(findings, indent=2))
    else:
        click.echo(text_report.report(found[0], verbose=verbose), nl=False)
        if compared is not None:
            click.echo(text_report.comparison(compared, *found), nl=False)
    if plot_file is not None:
        click.echo(f"drawn: {plot_file}", err=True)


def _end(signum: int, frame: object) -> None:
    """Leave by an exception, so that Prometheus is ended and the temporary directory removed."""
    raise SystemExit(128 + signum)


def _expect_rules(paths: tuple[Path, ...]) -> None:
    from omniwatch.desk.backtest import rule_sets

    for path in paths:
        if not rule_sets.is_rules(path):
            raise UserError(f"{path}: no rule file: it has no groups")


def _spooled(file: str, directory: Path) -> str:
    """Return a file that can be read more than once."""
    if file != "-":
        return file
    copy = directory / "events.jsonl"
    with copy.open("wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out)
    return str(copy)


def _run(path: str, file: str, chosen: list[Side], directory: Path, curves: bool) -> list[Findings]:
    from omniwatch.desk.backtest.errors import BacktestError
    from omniwatch.desk.backtest.run import backtest

    found = []
    for number, side in enumerate(chosen, 1):
        tell = _teller(f"{number} of {len(chosen)}: " if len(chosen) > 1 else "")
        try:
            found.append(backtest(path, side, directory / f"run-{number}", tell, curves=curves))
        except BacktestError as error:
            raise BacktestError(str(error).replace(path, file)) from error
        finally:
            _clear()
    return found


def _teller(prefix: str) -> Progress:
    """Return what tells on a terminal how far it is, at each whole per cent."""
    if not shows_progress():
        return lambda what, share: None
    last = ""

    def tell(what: str, share: float) -> None:
        nonlocal last
        line = f"{prefix}{what} {int(share * 100)}%"
        if line != last:
            last = line
            click.echo(f"\r{line}\x1b[K", nl=False, err=True)

    return tell


def _clear() -> None:
    if shows_progress():
        click.echo("\r\x1b[K", nl=False, err=True)
