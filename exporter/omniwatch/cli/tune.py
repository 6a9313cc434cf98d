"""Measure what CPU limits do to the model server's frames, and set limits that do not hurt them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, config_option, os_error, shows_progress
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.host.cgroup import Group
    from omniwatch.settings import Server
    from omniwatch.tune.advice import Advice
    from omniwatch.tune.sample import Watched


@click.command()
@config_option("omniwatch.yaml; its server.unit is watched.")
@click.option("--unit", help="Another unit than the settings'.")
@click.option("--seconds", type=Number(1, 86400), default=60, show_default=True, help="How long to watch.")
@click.option(
    "--cap",
    is_flag=False,
    flag_value="auto",
    default=None,
    metavar="[CPUS]",
    help="A quota is demanded: of so many CPUs, or the smallest that stops no frame.",
)
@click.option("--apply", "do_apply", is_flag=True, help="Write the drop-in, after showing how it differs.")
@click.option("--revert", "do_revert", is_flag=True, help="Take back what --apply wrote for this unit.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    config_file: Path | None,
    unit: str | None,
    seconds: float,
    cap: str | None,
    do_apply: bool,
    do_revert: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Watch the running model server's cgroup under its real load and say what its CPU limits do to it.

    A quota stops all threads of the server at once. With the usual period of 100 ms that is for up to 96 ms, longer than one
    codec frame. The report says how long the server stands still, and how late a frame comes at worst. It says whether the
    voice will drift away from the picture, and what to set instead. Where a slice that the unit is in has a tighter quota, it
    is the slice that is watched, and set. Watch for ten minutes of real conversations before you --apply.

    A limit is never lowered unless --cap names a number of CPUs. --apply asks, writes
    /etc/systemd/system/UNIT.d/50-cpu.conf, and reads back what the kernel took: exit code 1 when it took something else.

    \b
    Example:
      omniwatch tune --seconds 600
      omniwatch tune --seconds 600 --cap --apply
      omniwatch tune --revert
    """
    from omniwatch import settings
    from omniwatch.host.cgroup import locate, tightest
    from omniwatch.tune import change

    if do_apply and do_revert:
        raise click.UsageError("--apply and --revert exclude each other.")
    if do_apply and not yes and not sys.stdin.isatty():
        raise click.UsageError("--apply asks first: without a terminal it needs --yes.")
    if cap not in (None, "auto") and not _is_cpus(cap):
        raise click.UsageError(f'--cap: expected a number of CPUs, at least 0.01, got "{cap}"')
    try:
        config = settings.load(config_file)
        server, frame_s = config.server, config.frames.frame_ms / 1000
        if unit:
            server = _of_unit(server, unit)
        if do_revert:
            click.echo(change.taken_back(change.revert(server)))
            return
        groups = locate(server)
        if not groups:
            raise UserError(f"{server.unit}: no cgroup of this name; is it running? (--unit names another)")
        group = tightest(groups)
        if group is not groups[0]:
            click.echo(
                f"{group.name}, which {server.unit} is in, has the tighter quota: it is watched", err=True
            )
            server = _of_unit(server, group.name)
        seen, advice = _watch(group, seconds, cap, frame_s)
        _say(server.unit, seen, advice, frame_s, as_json)
        if do_apply and advice.recommended is not None:
            plan = change.plan(server, group, advice.recommended.limit, advice.weight)
            click.echo(plan.diff or f"{plan.target}: is so already\n", nl=False, err=as_json)
            if not yes and not click.confirm("write this?", err=True):
                return
            wrong = change.apply(server, plan)
            if wrong:
                click.echo(f"{server.unit}: {wrong}", err=True)
                sys.exit(1)
            click.echo(f"wrote {plan.target}; the kernel took it", err=as_json)
    except OSError as error:
        raise os_error(error) from error


def _of_unit(server: Server, unit: str) -> Server:
    import msgspec

    try:
        return msgspec.convert(
            {**msgspec.structs.asdict(server), "unit": unit, "container_id_file": ""}, type(server)
        )
    except msgspec.ValidationError as error:
        message = f'--unit: expected the name of a unit, such as {server.unit}, got "{unit}"'
        raise click.UsageError(message) from error


def _is_cpus(cap: str | None) -> bool:
    try:
        return 0.01 <= float(cap or "") < math.inf
    except ValueError:
        return False


def _watch(group: Group, seconds: float, cap: str | None, frame_s: float) -> tuple[Watched, Advice]:
    import time

    from omniwatch.tune.advice import advise
    from omniwatch.tune.sample import WatchError, limit_of, watch

    limit, limits = limit_of(group), group.limits()
    if limit is None or limits is None:
        raise WatchError(
            f"{group.name}: the kernel's cpu controller is not active for it: it has no limits to tune"
        )
    shown = shows_progress()
    with click.progressbar(
        length=round(seconds * 10), label=f"watching {group.name}", file=sys.stderr
    ) as bar:
        seen = watch(
            group,
            seconds,
            clock=time.monotonic,
            wait=time.sleep,
            progress=(lambda done: bar.update(max(0, round(done * 10) - bar.pos)))
            if shown
            else lambda done: None,
        )
    advice = advise(
        seen,
        limit,
        cpus=_cpus(),
        frame_s=frame_s,
        # Only a service can set its burst anew at each start.
        has_burst=limits.burst_s is not None and group.name.endswith(".service"),
        weight=limits.weight,
        cap=cap is not None,
        cap_cores=None if cap in (None, "auto") else float(cap or 0),
    )
    return seen, advice


def _cpus() -> int:
    """CPUs that are on and allowed to this process."""
    import os

    return len(os.sched_getaffinity(0))


def _say(unit: str, seen: Watched, advice: Advice, frame_s: float, as_json: bool) -> None:
    from omniwatch.tune import output

    if as_json:
        click.echo(json.dumps(output.as_json(unit, seen, advice, _cpus()), indent=2))
        return
    for line in output.as_text(unit, seen, advice, _cpus(), frame_s):
        click.echo(line)
