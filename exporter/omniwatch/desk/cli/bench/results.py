"""Put results of `bench chain` together, and compare two."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import os_error
from omniwatch.desk.cli.bench.chain import check_plot, publish
from omniwatch.system.errors import UserError

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("results", metavar="RESULT...", type=FILE, nargs=-1)
@click.option(
    "--vllm",
    "vllm_files",
    metavar="FILE",
    type=FILE,
    multiple=True,
    help="A result of `vllm bench serve --omni --save-result`, as a further column; repeatable.",
)
@click.option("--out", metavar="FILE", type=FILE, help="Write the result, as JSON.")
@click.option("--markdown", "markdown_file", metavar="FILE", type=FILE, help="Write the tables.")
@click.option("--plot", metavar="FILE", type=FILE, help="Draw them: .svg, .png or .pdf (omniwatch[plot]).")
def merge(
    results: tuple[Path, ...],
    vllm_files: tuple[Path, ...],
    out: Path | None,
    markdown_file: Path | None,
    plot: Path | None,
) -> None:
    """Put results of several runs into one table: one chain after the other, or further levels.

    The runs must have asked the same questions. One RESULT alone is printed as it is.

    \b
    Example:
      omniwatch bench merge native.json cascade.json --markdown table.md
      omniwatch bench merge both.json --vllm vllm-result.json
    """
    import datetime

    from omniwatch import __version__
    from omniwatch.desk.chain import results as files

    if not results and not vllm_files:
        raise UserError("expected at least one RESULT or --vllm FILE")
    if plot is not None:
        check_plot(plot)
    try:
        found = [(path, files.read(path)) for path in results]
        foreign = [files.import_vllm(path) for path in vllm_files]
        if foreign:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            imported = files.empty(foreign, f"omniwatch {__version__}", now)
            merged = files.with_foreign(files.merge(found), foreign) if found else imported
        else:
            merged = files.merge(found)
        publish(merged, out, markdown_file, plot)
    except OSError as error:
        raise os_error(error) from error


@click.command()
@click.argument("first", metavar="A.json", type=FILE)
@click.argument("second", metavar="B.json", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the resampling.")
def compare(first: Path, second: Path, as_json: bool, seed: int) -> None:
    """Compare two results of `bench chain`: each figure of both, and whether a difference is shown.

    Medians are different if a bootstrap's 95 % interval of their difference leaves out 0. Other percentiles are different
    if their intervals do not overlap.

    \b
    Example:
      omniwatch bench compare before.json after.json
    """
    import json

    from omniwatch.desk.chain import compare as comparing
    from omniwatch.desk.chain import results as files
    from omniwatch.desk.chain.tables import columns

    try:
        found = list(comparing.compare(files.read(first), files.read(second), seed))
    except OSError as error:
        raise os_error(error) from error
    if not found:
        raise UserError(f"{first} and {second} have no column in common: other chains or other concurrency")
    if as_json:
        click.echo(json.dumps([comparing.plain(one) for one in found], indent=1))
    else:
        click.echo(columns(comparing.table(found, (first.name, second.name))))
