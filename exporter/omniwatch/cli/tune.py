"""Measure what CPU limits do to the model server's frames, and set limits and a congestion control that do not hurt them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

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
@click.option("--congestion", is_flag=True, help="Tune TCP's congestion control in place of CPU limits.")
@click.option(
    "--rtt-ms", type=Number(1, 60_000), default=100, show_default=True, help="Round trip of a path."
)
@click.option("--loss-percent", type=Number(0.01, 99), default=10, show_default=True, help="What it loses.")
@click.option("--diff", "as_diff", is_flag=True, help="Say how files would differ; exit code 1 if they do.")
@click.option("--apply", "do_apply", is_flag=True, help="Write, after showing how files differ.")
@click.option("--revert", "do_revert", is_flag=True, help="Take back what --apply wrote.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    config_file: Path | None,
    unit: str | None,
    seconds: float,
    cap: str | None,
    congestion: bool,
    rtt_ms: float,
    loss_percent: float,
    as_diff: bool,
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

    --congestion says what new connections get, whether the kernel has BBR, and what a loss-based one carries on such a path.
    With --apply it writes a file each to /etc/sysctl.d and, for a module, /etc/modules-load.d. It sets the running value, too.
    --revert sets what ran before. Either changes all new connections of this machine.

    \b
    Example:
      omniwatch tune --seconds 600
      omniwatch tune --seconds 600 --cap --apply
      omniwatch tune --revert
      omniwatch tune --congestion --rtt-ms 150 --loss-percent 5
      omniwatch tune --congestion --apply
    """
    from omniwatch import settings
    from omniwatch.host.cgroup import locate, tightest
    from omniwatch.tune import change

    if do_apply + do_revert + as_diff > 1:
        raise click.UsageError("--apply, --diff and --revert exclude each other.")
    for name in ("rtt_ms", "loss_percent") if not congestion else ("unit", "seconds", "cap"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} {'is not for' if congestion else 'needs'} --congestion.")
    if do_apply and not yes and not sys.stdin.isatty():
        raise click.UsageError("--apply asks first: without a terminal it needs --yes.")
    if cap not in (None, "auto") and not _is_cpus(cap):
        raise click.UsageError(f'--cap: expected a number of CPUs, at least 0.01, got "{cap}"')
    try:
        if congestion:
            _congestion(ctx.params)
            return
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
        if (do_apply or as_diff) and advice.recommended is not None:
            plan = change.plan(server, group, advice.recommended.limit, advice.weight)
            _change(ctx.params, plan.diff, plan.target, server.unit, partial(change.apply, server, plan))
    except OSError as error:
        raise os_error(error) from error


def _change(how: dict[str, Any], diff: str, target: object, name: str, apply: Callable[[], str]) -> None:
    """Show a change and, unless that is all, ask and make it; `apply` returns what the kernel has otherwise."""
    click.echo(diff or f"{target}: is so already\n", nl=False, err=how["as_json"])
    if how["as_diff"]:
        sys.exit(1 if diff else 0)
    if not how["yes"] and not click.confirm("write this?", err=True):
        return
    if wrong := apply():
        click.echo(f"{name}: {wrong}", err=True)
        sys.exit(1)
    click.echo(f"wrote {target}; the kernel took it", err=how["as_json"])


def _congestion(how: dict[str, Any]) -> None:
    from omniwatch.tune import congestion, output

    if how["do_revert"]:
        back = ", ".join(map(str, congestion.revert()))
        click.echo(f"took back {back}" if back else "nothing to take back")
        return
    kernel = congestion.look()
    path = how["rtt_ms"] / 1000, how["loss_percent"] / 100
    if how["as_json"]:
        click.echo(json.dumps(output.congestion_as_json(kernel, *path), indent=2))
    else:
        click.echo("\n".join(output.congestion_as_text(kernel, *path)))
    if how["do_apply"] and not kernel.bbr:
        raise UserError(f"Linux {kernel.release} has no BBR: nothing is written")
    if (how["do_apply"] or how["as_diff"]) and kernel.bbr and kernel.congestion_control != congestion.BBR:
        wanted = congestion.files(kernel)
        apply = partial(congestion.apply, wanted)
        _change(how, congestion.diff(wanted), ", ".join(map(str, wanted)), "congestion control", apply)


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
