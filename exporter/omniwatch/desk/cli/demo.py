"""Show the main job on this machine: a simulated fault becomes a page, and the page goes away again."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import click

from omniwatch.system.errors import UserError


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="End by itself when the page has come and gone; exit 1 if it did not in time.",
)
@click.option(
    "--scenario", default="reconnect-jump", show_default=True, help="One of `omniwatch simulate --list`."
)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
def command(once: bool, scenario: str, seed: int) -> None:
    """Run a simulated server, the sidecar, Prometheus, Alertmanager and a pager on loopback, and tell what happens.

    \b
    Example:
      omniwatch demo --once
      omniwatch demo --scenario late-answers
    """
    from omniwatch.desk.demo import GRACE_S, Demo, DemoError
    from omniwatch.desk.demo.local_stack import Stack
    from omniwatch.desk.simulation import SCENARIOS

    paging = [name for name, entry in SCENARIOS.items() if entry.alert]
    if scenario not in paging:
        raise UserError(f"no scenario that pages is named {scenario!r}; there are {', '.join(paging)}")
    terminal = sys.stderr.isatty()
    started = time.time()

    def waiting(what: str) -> None:
        if terminal:
            click.echo(f"\r\033[K{time.time() - started:6.1f} s  waiting for {what} …", err=True, nl=False)

    def say(line: str) -> None:
        click.echo(("\r\033[K" if terminal else "") + line)

    with tempfile.TemporaryDirectory(prefix="omniwatch-demo-") as directory:
        try:
            with Stack(Path(directory), say=lambda line: say(f"  {line}")) as stack:
                demo = Demo(stack, SCENARIOS[scenario], seed, waiting)
                fault_t = None
                for step in demo.run():
                    fault_t = step.t if step.what == "fault begins" else fault_t
                    since = "" if fault_t is None else f"{step.t - fault_t:+7.1f} s"
                    clock = time.strftime("%H:%M:%S", time.localtime(step.t))
                    say(f"{clock} {since:>9}  {step.what:<18} {step.detail}".rstrip())
                say(
                    f"The page came {demo.page_after_s:.1f} s after the fault showed; "
                    f"the rule waits {demo.for_s} s, {demo.for_s + GRACE_S:.0f} s is the limit."
                )
                if not once:
                    say("Open the addresses above; Ctrl-C ends it.")
                    while True:
                        time.sleep(1)
        except DemoError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            return
    if not demo.in_time:
        raise click.ClickException("the page came too late")
