"""Choose the experts that stay, by their scores."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import os_error
from omniwatch.system.errors import UserError


@click.command()
@click.argument("scores", metavar="SCORES", type=click.Path(path_type=Path))
@click.option(
    "--experts",
    required=True,
    metavar="K",
    help="Experts a layer that stay, or thinker=K,talker=K. A part that is not named keeps all.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="The checkpoint that a report of llm-compressor is of.",
)
@click.option("--text-only", is_flag=True, help="Take scores without speech: what hears may go first.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to write. [default: keep.json beside the scores]",
)
@click.option("--dry-run", is_flag=True, help="Print it instead.")
def keep(
    scores: Path, experts: str, model: Path | None, text_only: bool, out: Path | None, dry_run: bool
) -> None:
    """Write keep.json: the experts of each layer that stay, by the scores in SCORES.

    SCORES is a folder with scores.json, or a saliency report of llm-compressor with --model. Speech, pictures
    and text each rank the experts, and the best of an expert's ranks counts. Numbers that are multiples of 8 are advised.

    \b
    Example:
      omniwatch slice keep scores/ --experts 96
      omniwatch slice keep scores/ --experts thinker=64,talker=96 --out keep.json
      omniwatch slice keep report.json --model /opt/qwen3-omni --experts thinker=96 --text-only
    """
    from omniwatch.desk.plan import experts as numbers
    from omniwatch.desk.slice import choosing, keep_file, source
    from omniwatch.desk.slice import scores as files
    from omniwatch.system import atomic_write

    try:
        if scores.is_dir():
            if model is not None:
                raise UserError("--model is for a report of llm-compressor; the folder knows its model")
            about = files.read_about(scores)
            digest = about.config_sha256
            parts = {name: part.as_part() for name, part in about.parts.items()}
            wanted = numbers.parse(experts, list(parts))
            found = {name: files.read(scores, name, parts[name]) for name in wanted}
        else:
            if model is None:
                raise UserError(f"{scores}: a report does not say of which model it is: --model MODEL")
            checkpoint = source.read(model)
            digest, parts = checkpoint.config_sha256, checkpoint.parts
            wanted = numbers.parse(experts, list(parts))
            if len(wanted) > 1:
                raise UserError("--experts: a report is of one part: expected thinker=K or talker=K")
            found = {name: files.read_report(scores, parts[name]) for name in wanted}
        content = keep_file.encoded(choosing.choose(digest, parts, wanted, found, text_only=text_only))
        odd = [f"{name}={count}" for name, count in wanted.items() if count % choosing.TUNED]
        if odd:
            click.echo(
                f"note: {', '.join(odd)}: a multiple of {choosing.TUNED} is advised: vLLM has tuned kernels for few others",
                err=True,
            )
        if dry_run:
            click.echo(content.decode(), nl=False)
            return
        target = out or (scores / "keep.json" if scores.is_dir() else scores.with_name("keep.json"))
        atomic_write.replace(target, content)
    except OSError as error:
        raise os_error(error) from error
    click.echo(
        f"{target}: "
        + ", ".join(f"{name} keeps {count} of {parts[name].experts}" for name, count in wanted.items())
    )
