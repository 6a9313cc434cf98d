"""Find out how much each expert is needed."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import Number, os_error
from omniwatch.system.errors import UserError

FOLDER = click.Path(path_type=Path)
EXTRA = ("torch", "transformers", "safetensors")
"""Modules that `omniwatch[slice]` brings."""


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("data", type=FOLDER)
@click.option(
    "--out", required=True, metavar="DIR", type=FOLDER, help="Where scores, rankings and answers go."
)
@click.option(
    "--answers",
    is_flag=True,
    help="Have the whole model answer first, where DIR has no answers yet: the talker is scored by them.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 32_768),
    default=256,
    show_default=True,
    help="Text tokens of an answer at most; with --answers.",
)
@click.option(
    "--max-speech",
    type=Number(0.2, 600),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds of speech of an answer at most; with --answers.",
)
@click.option("--speaker", default="Ethan", show_default=True, help="The voice; with --answers.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Draws the codec tokens; with --answers."
)
@click.option("--device", default="cpu", show_default=True, help="Where torch computes, such as cuda:0.")
def score(
    model: Path,
    data: Path,
    out: Path,
    answers: bool,
    max_tokens: int,
    max_speech: float,
    speaker: str,
    seed: int,
    device: str,
) -> None:
    """Score the experts of the checkpoint in MODEL by the questions in DATA. Needs omniwatch[slice].

    DATA is what `bench chain` takes: WAV files, and beside NAME.wav its words (.txt) and a picture. One layer is in memory at a
    time, but for --answers, which needs memory for the whole model. Without answers only the thinker has scores. Killed, the
    same command goes on at its layer.

    \b
    Example:
      omniwatch slice score /opt/qwen3-omni questions/ --out scores/
      omniwatch slice score /opt/qwen3-omni questions/ --out scores/ --answers --device cuda:0
    """
    check_extra("score")
    from omniwatch.desk.slice.answering import Limits
    from omniwatch.desk.slice.scoring import score as scored

    check_device(device)
    limits = Limits(max_tokens, max_speech, seed, speaker) if answers else None
    try:
        found = scored(
            model,
            data,
            out,
            device=device,
            limits=limits,
            told=lambda line: click.echo(line, err=True),
        )
    except OSError as error:
        raise os_error(error) from error
    for part, kinds in found.parts.items():
        click.echo(f"{out}: {part}: scores of {', '.join(kinds)}")
    for part in found.without:
        click.echo(f"{out}: {part}: no scores, as there are no answers (--answers)")


def check_extra(command: str) -> None:
    """Raise UserError where the extra is not installed."""
    from omniwatch.system import needed

    if missing := [name for name in EXTRA if not needed.is_there(name)]:
        raise UserError(f"slice {command} needs {', '.join(missing)}: pip install 'omniwatch[slice]'")


def check_device(device: str) -> None:
    """Raise UserError for a device that torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        said = (str(error).strip().splitlines() or ["not there"])[0][:100]
        raise UserError(f"--device {device}: {said}") from error
