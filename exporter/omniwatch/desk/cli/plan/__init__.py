"""Compute what a checkpoint needs on a device, what would make it fit, and the flags to start it with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, os_error
from omniwatch.system import user_file
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.plan.device import DeviceMemory
    from omniwatch.desk.plan.startup import StageStart

DEVICES = ("orin-64", "orin-32", "thor", "here")


@click.command()
@click.argument("checkpoint", required=False, type=click.Path(path_type=Path))
@click.option("--profile", metavar="NAME", help="Plan what this profile runs (deploy/profiles).")
@click.option(
    "--quantization",
    "types",
    multiple=True,
    metavar="[COMPONENT=]TYPE",
    help="COMPONENT is thinker, talker, all, or a component of the table. TYPE is bf16, fp8, int8 or int4, the last two with their group, "
    "as in int4:64 (default 128). May be given more than once. [default: as the checkpoint has it]",
)
@click.option(
    "--experts",
    metavar="K",
    help="Keep K experts a layer, or thinker=K,talker=K. A part that is not named keeps all.",
)
@click.option(
    "--streams", type=int, default=1, show_default=True, metavar="N", help="Streams at the same time."
)
@click.option(
    "--max-model-len",
    type=int,
    default=0,
    metavar="N",
    help="Tokens of one stream. [default: 32768, or what the model takes]",
)
@click.option(
    "--kv-cache-dtype",
    "kv_type",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Type of the KV cache.",
)
@click.option(
    "--no-talker", "silent", is_flag=True, help="Text only: no talker, code predictor and code2wav."
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=None,
    help="The device. `here` measures this one. [default: orin-64]",
)
@click.option(
    "--device-memory-gb", type=Number(1, 100000), help="Another device's memory, in GB of 10^9 bytes."
)
@click.option(
    "--startup-log",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A server's start-up lines (- for standard input): contexts and activations as it measured them.",
)
@click.option(
    "--ladder", "as_ladder", is_flag=True, help="Print what each step down buys, one under the other."
)
@click.option(
    "--flags", "as_flags", is_flag=True, help="Print a shell script that starts vLLM-Omni 0.30 as planned."
)
@click.option(
    "--vllm", metavar="PROGRAM", help="With --flags: an installed vllm-omni, whose parser checks them."
)
@click.option(
    "--measure-disk",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Read a large file of DIR (at most 10 s) and say what reloading costs.",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the plan as .svg or .png (needs matplotlib).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    checkpoint: Path | None,
    profile: str | None,
    types: tuple[str, ...],
    experts: str | None,
    streams: int,
    max_model_len: int,
    kv_type: str,
    silent: bool,
    device: str | None,
    device_memory_gb: float | None,
    startup_log: Path | None,
    as_ladder: bool,
    as_flags: bool,
    vllm: str | None,
    measure_disk: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compute from a checkpoint's config.json and safetensors headers what it needs on a device.

    CHECKPOINT is a directory or a config.json; without it, Qwen3-Omni-30B-A3B-Instruct as released. No tensor is read and
    nothing is downloaded. Weights are exact, and KV cache is computed from the architecture. CUDA contexts and activations are
    assumed, unless --startup-log names the lines that a server wrote when it started. GB are 10^9 bytes.

    Exit code 0 when it fits, 1 when it does not, 2 for input that does not hold.

    \b
    Example:
      omniwatch plan --quantization thinker=int4 --streams 2
      omniwatch plan /opt/qwen3-omni-int4 --device here --ladder
      omniwatch plan /opt/qwen3-omni-int4 --flags > serve.sh
      journalctl -u qwen3-omni -b | omniwatch plan /opt/qwen3-omni-int4 --startup-log -
    """
    from omniwatch.desk import plotting
    from omniwatch.desk.cli.plan import disk, flags, ladder, picture, table
    from omniwatch.desk.plan import components, planning
    from omniwatch.desk.plan import experts as numbers
    from omniwatch.desk.plan.memory import Wanted

    if device and device_memory_gb is not None:
        raise click.UsageError("--device and --device-memory-gb exclude each other.")
    if sum((as_ladder, as_flags, measure_disk is not None)) > 1:
        raise click.UsageError("--ladder, --flags and --measure-disk exclude each other.")
    if profile and (checkpoint or types or experts is not None or streams != 1 or max_model_len or silent):
        raise click.UsageError("--profile says what runs: no CHECKPOINT and no options for that beside it.")
    if vllm and not as_flags:
        raise click.UsageError("--vllm checks what --flags prints.")
    try:
        if plot_file is not None:
            plotting.check_target(plot_file)
        if profile:
            types, silent, streams, max_model_len, kv_type = _of_profile(profile)
        name, model, weights = planning.read(checkpoint)
        wanted = Wanted(
            name=name,
            model=model,
            weights=weights,
            device=_device(device, device_memory_gb),
            types=components.parse_types(types),
            experts=numbers.parse(experts, model.silent().parts if silent else model.parts)
            if experts is not None
            else {},
            talker=not silent,
            streams=streams,
            max_model_len=max_model_len,
            kv_type=kv_type,
            starts=_starts(startup_log),
        )
        plan = planning.plan(wanted)
        if plot_file is not None:
            picture.draw(plan, plot_file)
        if as_flags:
            flags.print_flags(plan, checkpoint, vllm, as_json=as_json)
        elif measure_disk is not None:
            disk.print_disk(plan, measure_disk, as_json=as_json)
        elif as_ladder:
            ladder.print_ladder(wanted, as_json=as_json)
        else:
            table.print_table(plan, as_json=as_json)
    except OSError as error:
        raise os_error(error) from error
    ctx.exit(0 if plan.result.fits else 1)


def _of_profile(name: str) -> tuple[tuple[str, ...], bool, int, int, str]:
    from omniwatch.bundle import profiles

    found = profiles.load(name)
    if found.plan is None:
        raise UserError(f"profile {name}: nothing to compute: {found.cannot}")
    plan = found.plan
    return tuple(plan.quantization), not plan.talker, plan.streams, plan.max_model_len, plan.kv_cache_dtype


def _device(name: str | None, memory_gb: float | None) -> DeviceMemory:
    from omniwatch.desk.plan.device import DEVICES, DeviceMemory, of_size
    from omniwatch.host.memory import total_bytes

    if memory_gb is not None:
        return of_size(memory_gb)
    if name != "here":
        return DEVICES[name or "orin-64"]
    measured = total_bytes()
    if measured is None:
        raise UserError("/proc/meminfo: says no MemTotal; --device-memory-gb names it")
    return DeviceMemory("this device", measured)


def _starts(path: Path | None) -> dict[str, StageStart]:
    from omniwatch.desk.plan import startup
    from omniwatch.desk.plan.model import PlanError

    if path is None:
        return {}
    found = startup.parse(_lines(path))
    if not found:
        raise PlanError(f'{path}: no start-up lines of vLLM\'s stages in it ("Actual usage is ... GiB")')
    return found


def _lines(path: Path) -> Iterator[str]:
    if str(path) == "-":
        yield from sys.stdin
        return
    with os.fdopen(user_file.open_regular(path), encoding="utf-8", errors="replace") as lines:
        yield from lines
