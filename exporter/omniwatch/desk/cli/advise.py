"""Say which way to run a speaking model fits a site, and which number decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, os_error
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.advise import Check, Judged
    from omniwatch.desk.chain import Result

POSITIVE = Number(min=0, min_open=True)


@click.command()
@click.option("--memory-gb", type=POSITIVE, help="Memory of the device, in GB of 10^9 bytes.")
@click.option("--cloud-memory-gb", type=POSITIVE, help="Memory of the server in the data centre.")
@click.option("--red-line-ms", type=POSITIVE, help="Longest good time to the first audio.")
@click.option(
    "--percentile",
    type=click.Choice(["50", "90", "99"]),
    default="90",
    show_default=True,
    help="Of the turns, where the red line is held.",
)
@click.option(
    "--streams", type=click.IntRange(1, 256), default=1, show_default=True, help="Listeners at once."
)
@click.option("--watts", type=POSITIVE, help="Highest good power of the rails.")
@click.option("--cost", type=POSITIVE, help="Highest good cost an hour.")
@click.option(
    "--price",
    "prices",
    metavar="CANDIDATE=AMOUNT",
    multiple=True,
    help="What a candidate costs an hour; repeatable.",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(1, 1_000_000),
    default=8192,
    show_default=True,
    help="Tokens of one stream.",
)
@click.option(
    "--measured",
    metavar="CANDIDATE=FILE",
    multiple=True,
    help="A result of omniwatch bench chain for a candidate; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    memory_gb: float | None,
    cloud_memory_gb: float | None,
    red_line_ms: float | None,
    percentile: str,
    streams: int,
    watts: float | None,
    cost: float | None,
    prices: tuple[str, ...],
    max_model_len: int,
    measured: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge four candidates against what a site allows: cloud-native, edge-int4, thinker-only and cascade.

    Memory is computed where it was not measured. Nothing else is guessed: what nobody measured is named, with the command
    that would. Candidates that fail come last, the nearest miss first.

    Exit code: 0 when a candidate passes, 1 when none does, 2 for input that does not hold.

    \b
    Example:
      omniwatch advise --memory-gb 64 --red-line-ms 750 --streams 2 --measured edge-int4=orin.json
    """
    import msgspec

    from omniwatch.desk.advise import Constraints, advise
    from omniwatch.desk.advise.facts import gather

    constraints = Constraints(
        memory_gb=memory_gb,
        cloud_memory_gb=cloud_memory_gb,
        red_line_s=None if red_line_ms is None else red_line_ms / 1000,
        percentile=int(percentile),
        streams=streams,
        watts=watts,
        cost=cost,
        max_model_len=max_model_len,
    )
    if all(limit is None for limit in (memory_gb, cloud_memory_gb, red_line_ms, watts, cost)):
        raise UserError("expected a limit: --memory-gb, --cloud-memory-gb, --red-line-ms, --watts or --cost")
    try:
        found = advise(constraints, gather(constraints, _results(measured), _prices(prices)))
    except OSError as error:
        raise os_error(error) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        click.echo("\n\n".join(map(_shown, found)))
    if not any(one.verdict == "passes" for one in found):
        raise SystemExit(1)


def _results(texts: Sequence[str]) -> dict[str, Result]:
    from omniwatch.desk.chain.results import read

    return {name: read(Path(value)) for name, value in _by_candidate("--measured", texts)}


def _prices(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for name, value in _by_candidate("--price", texts):
        try:
            found[name] = float(value)
        except ValueError as error:
            raise UserError(f'--price {name}: expected a number, got "{value}"') from error
    return found


def _by_candidate(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    from omniwatch.desk.advise import CANDIDATES

    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value or name not in CANDIDATES:
            raise UserError(f'{option}: expected {", ".join(CANDIDATES)} and =VALUE, got "{text}"')
        found.append((name, value))
    return found


def _shown(one: Judged) -> str:
    decides = f" (decided by: {one.decides})" if one.decides else ""
    return "\n".join([f"{one.name}: {one.verdict}{decides}", f"  {one.words}", *map(_line, one.checks)])


def _line(check: Check) -> str:
    unit = f" {check.unit}" if check.unit else ""
    if check.value is None:
        return f"  {check.name}: not measured. To measure: {check.measure}"
    more = f". To decide: {check.measure}" if check.measure else ""
    return f"  {check.name}: {check.verdict}: {check.value:.3g}{unit}, limit {check.limit:g}{unit} ({check.source}){more}"
