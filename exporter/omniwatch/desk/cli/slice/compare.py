"""Measure what a cut costs."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import Number, os_error
from omniwatch.desk.cli.slice.score import check_device, check_extra
from omniwatch.system.errors import UserError

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.argument("data", type=FOLDER)
@click.option(
    "--answers",
    required=True,
    metavar="DIR",
    type=FOLDER,
    help="The folder in which `slice score --answers` keeps what MODEL answered.",
)
@click.option("--native", metavar="URL", help="A server of OUT: its speech is transcribed, too. Needs --asr.")
@click.option("--asr", metavar="URL", help="A speech recognition, as `bench chain` takes it. Needs --native.")
@click.option(
    "--timeout",
    type=Number(0.1, 3600),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Give up on an answer or a transcript when nothing new came for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--device", default="cpu", show_default=True, help="Where torch computes, such as cuda:0.")
def compare(
    model: Path,
    out: Path,
    data: Path,
    answers: Path,
    native: str | None,
    asr: str | None,
    timeout: float,
    as_json: bool,
    device: str,
) -> None:
    """Measure how far the cut model in OUT agrees with the one in MODEL, and write it into SLICE.md. Needs omniwatch[slice].

    Both are given MODEL's own answers to DATA, layer by layer. It says how likely each finds them, and where their next tokens
    differ. That is agreement, not quality. With --native and --asr a word error rate of both models' speech stands beside it.

    \b
    Example:
      omniwatch slice compare /opt/qwen3-omni /opt/qwen3-omni-96 questions/ --answers scores/
      omniwatch slice compare /opt/qwen3-omni /opt/qwen3-omni-96 questions/ --answers scores/ \\
          --native http://127.0.0.1:8000 --asr http://127.0.0.1:8001
    """
    if (native is None) != (asr is None):
        raise UserError("--native and --asr go together: one speaks, the other writes down what it hears")
    check_extra("compare")
    from omniwatch.desk.slice import comparing, cost
    from omniwatch.desk.slice.heard import Servers

    servers = None if native is None or asr is None else Servers.parsed(native, asr, timeout)
    check_device(device)
    try:
        pair = comparing.Pair(model, out, data, answers)
        spoken = None if servers is None else servers.ask(pair.asked, pair.answers, answers)
        found = comparing.compare(pair, device=device, told=lambda line: click.echo(line, err=True))
        if spoken is not None:
            found = cost.with_words(found, *spoken)
        comparing.publish(pair, found)
    except OSError as error:
        raise os_error(error) from error
    click.echo(cost.as_json(found) if as_json else "\n".join(cost.lines(found)))
