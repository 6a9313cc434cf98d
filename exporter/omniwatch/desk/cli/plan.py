"""Compute what a checkpoint needs on a device, what would make it fit, and the flags to start it with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, os_error
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.plan.device import Device
    from omniwatch.desk.plan.disk import Speed
    from omniwatch.desk.plan.memory import Wanted
    from omniwatch.desk.plan.planning import Plan
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
    help="bf16, fp8, int8 or int4, the last two with their group as in int4:64 (default 128), for thinker, talker, "
    "all, or one component of the table. May be given more than once. [default: as the checkpoint has it]",
)
@click.option("--experts", type=int, metavar="K", help="Keep K experts a layer, in thinker and talker.")
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
@click.option("--ladder", is_flag=True, help="Print what each step down buys, one under the other.")
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
    experts: int | None,
    streams: int,
    max_model_len: int,
    kv_type: str,
    silent: bool,
    device: str | None,
    device_memory_gb: float | None,
    startup_log: Path | None,
    ladder: bool,
    as_flags: bool,
    vllm: str | None,
    measure_disk: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compute from a checkpoint's config.json and safetensors headers what it needs on a device.

    CHECKPOINT is a directory or a config.json; without it, Qwen3-Omni-30B-A3B-Instruct as released. No tensor is read and
    nothing is downloaded. Weights are exact; KV cache is computed from the architecture; CUDA contexts and activations are
    assumed, unless --startup-log names the lines that a server wrote when it started. GB are 10^9 bytes.

    Exit code 0 when it fits, 1 when it does not, 2 for input that does not hold.

    \b
    Example:
      omniwatch plan --quantization thinker=int4 --streams 2
      omniwatch plan /opt/qwen3-omni-int4 --device here --ladder
      omniwatch plan /opt/qwen3-omni-int4 --flags > serve.sh
      journalctl -u qwen3-omni -b | omniwatch plan /opt/qwen3-omni-int4 --startup-log -
    """
    from omniwatch import plotting
    from omniwatch.desk.plan import components, planning
    from omniwatch.desk.plan.memory import Wanted

    if device and device_memory_gb is not None:
        raise click.UsageError("--device and --device-memory-gb exclude each other.")
    if sum((ladder, as_flags, measure_disk is not None)) > 1:
        raise click.UsageError("--ladder, --flags and --measure-disk exclude each other.")
    if profile and (checkpoint or types or experts or streams != 1 or max_model_len or silent):
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
            experts=experts,
            talker=not silent,
            streams=streams,
            max_model_len=max_model_len,
            kv_type=kv_type,
            starts=_starts(startup_log),
        )
        plan = planning.plan(wanted)
        if plot_file is not None:
            _draw(plan, plot_file)
        if as_flags:
            _print_flags(plan, checkpoint, vllm, as_json)
        elif measure_disk is not None:
            _print_disk(plan, measure_disk, as_json)
        elif ladder:
            _print_ladder(wanted, as_json)
        else:
            _print_plan(plan, as_json)
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


def _device(name: str | None, memory_gb: float | None) -> Device:
    from omniwatch.desk.plan.device import DEVICES, Device, of_size
    from omniwatch.host.memory import total_bytes

    if memory_gb is not None:
        return of_size(memory_gb)
    if name != "here":
        return DEVICES[name or "orin-64"]
    measured = total_bytes()
    if measured is None:
        raise UserError("/proc/meminfo: says no MemTotal; --device-memory-gb names it")
    return Device("this device", measured)


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
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def _draw(plan: Plan, path: Path) -> None:
    from omniwatch.desk.plan import picture, report
    from omniwatch.system import atomic_write

    atomic_write.replace(path, picture.encoded(plan.result, report.verdict(plan.result), path))
    click.echo(f"drawn: {path}", err=True)


def _print_plan(plan: Plan, as_json: bool) -> None:
    from omniwatch.desk.plan import report

    if as_json:
        _print_json(plan)
        return
    for line in report.as_text(plan):
        click.echo(line)


def _print_ladder(wanted: Wanted, as_json: bool) -> None:
    from omniwatch.desk.plan import ladder, report

    rungs, slices = list(ladder.rungs(wanted)), list(ladder.slices(wanted))
    if as_json:
        _print_json({"schema": 1, "steps": rungs, "experts": slices})
        return
    for line in report.ladder_text(rungs, slices):
        click.echo(line)


def _print_flags(plan: Plan, checkpoint: Path | None, vllm: str | None, as_json: bool) -> None:
    from omniwatch.bundle import profiles
    from omniwatch.desk.plan import flags
    from omniwatch.desk.plan.model import PlanError

    if not plan.result.fits:
        click.echo(f"Error: {flags.too_much(plan.result)}", err=True)
        return
    where = str(checkpoint.resolve()) if checkpoint else "/opt/qwen3-omni"
    program = profiles.program(vllm)
    found = flags.flags(plan.result, where, str(program or profiles.VLLM_OMNI))
    if program is not None:
        strange = profiles.unknown_words(found.command, profiles.ask(program)[0])
        if strange:
            raise PlanError(strange[0])
        click.echo(f"{program} knows every flag", err=True)
    if as_json:
        _print_json({"schema": 1, "flags": found})
    else:
        click.echo(flags.as_script(found), nl=False)


def _print_disk(plan: Plan, directory: Path, as_json: bool) -> None:
    from omniwatch.desk.plan import disk, report

    speed = _measured(disk.largest(directory))
    reloads = disk.reloads(plan.result, speed.bytes_s)
    if as_json:
        _print_json({"schema": 1, "speed": speed, "bytes_s": speed.bytes_s, "reloads": reloads})
        return
    past = "past the page cache" if speed.direct else "through the page cache: too fast, perhaps"
    click.echo(
        f"{speed.path}: {speed.bytes / 1e9:.2f} GB in {speed.seconds:.2f} s, {speed.bytes_s / 1e9:.2f} GB/s ({past})"
    )
    rows = [("loaded anew", "GB", "seconds at least")]
    rows += [(part.words, report.gb(part.bytes), f"{part.seconds:.1f}") for part in reloads]
    for line in report.table(rows):
        click.echo(line)


def _measured(path: Path) -> Speed:
    from omniwatch.desk.plan import disk

    if not sys.stderr.isatty():
        return disk.measure(path, lambda done, total: None)
    with click.progressbar(length=100, label=f"reading {path.name}", file=sys.stderr) as bar:
        return disk.measure(path, lambda done, total: bar.update(100 * done // total - bar.pos))


def _print_json(value: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
