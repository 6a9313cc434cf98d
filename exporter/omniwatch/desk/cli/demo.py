"""Show the main job on this machine: a simulated fault becomes a page, and the page goes away again."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.demo import Step


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="End by itself when the page has come and gone; exit 1 if it did not in time.",
)
@click.option(
    "--scenario", default="reconnect-jump", show_default=True, help="One of `omniwatch simulate --list`."
)
@click.option(
    "--fleet",
    "of_fleet",
    is_flag=True,
    help="Show a fleet instead: simulated devices, their centre, and a site that falls silent.",
)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@click.pass_context
def command(ctx: click.Context, once: bool, scenario: str, of_fleet: bool, seed: int) -> None:
    """Run a simulated server, the sidecar, Prometheus, Alertmanager and a pager on loopback, and tell what happens.

    \b
    Example:
      omniwatch demo --once
      omniwatch demo --scenario late-answers
      omniwatch demo --fleet --once
    """
    if of_fleet:
        if ctx.get_parameter_source("scenario") is not click.core.ParameterSource.DEFAULT:
            raise UserError("--fleet: has a course of its own, not one of --scenario")
        _fleet(once, seed)
        return
    from omniwatch.desk.demo import GRACE_S, Demo, DemoError
    from omniwatch.desk.demo.local_stack import Stack
    from omniwatch.desk.simulation import SCENARIOS

    paging = [name for name, entry in SCENARIOS.items() if entry.alert]
    if scenario not in paging:
        raise UserError(f"no scenario that pages is named {scenario!r}; there are {', '.join(paging)}")
    waiting = _waiting()

    with tempfile.TemporaryDirectory(prefix="omniwatch-demo-") as directory:
        try:
            with Stack(Path(directory), say=lambda line: _say(f"  {line}")) as stack:
                demo = Demo(stack, SCENARIOS[scenario], seed, waiting)
                fault_t = None
                for step in demo.run():
                    fault_t = step.t if step.what == "fault begins" else fault_t
                    _say(_line(step, fault_t))
                _say(
                    f"The page came {demo.page_after_s:.1f} s after the fault showed; "
                    f"the rule waits {demo.for_s} s, {demo.for_s + GRACE_S:.0f} s is the limit."
                )
                if not once:
                    _stay()
        except DemoError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            return
    if not demo.in_time:
        raise click.ClickException("the page came too late")


def _fleet(once: bool, seed: int) -> None:
    from omniwatch.desk.demo import DemoError
    from omniwatch.desk.demo.fleet import FleetDemo, FleetStack

    with tempfile.TemporaryDirectory(prefix="omniwatch-demo-") as directory:
        try:
            with FleetStack(Path(directory), lambda line: _say(f"  {line}"), seed) as stack:
                cut_t = None
                for step in FleetDemo(stack, _say, _waiting()).run():
                    cut_t = step.t if step.what == "site cut off" else cut_t
                    _say(_line(step, cut_t))
                if not once:
                    _stay()
        except DemoError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            return


def _line(step: Step, since_t: float | None) -> str:
    since = "" if since_t is None else f"{step.t - since_t:+7.1f} s"
    clock = time.strftime("%H:%M:%S", time.localtime(step.t))
    return f"{clock} {since:>9}  {step.what:<18} {step.detail}".rstrip()


def _waiting() -> Callable[[str], None]:
    """Return what shows on a terminal how long it has been, and what is waited for."""
    started = time.time()

    def waiting(what: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{time.time() - started:6.1f} s  waiting for {what} …", err=True, nl=False)

    return waiting


def _say(line: str) -> None:
    click.echo(("\r\033[K" if sys.stderr.isatty() else "") + line)


def _stay() -> None:
    _say("Open the addresses above; Ctrl-C ends it.")
    while True:
        time.sleep(1)
