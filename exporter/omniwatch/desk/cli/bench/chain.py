"""Measure a speaking model against a chain of ASR, LLM and TTS."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniwatch.cli import Number, os_error
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.chain import Result, Turn
    from omniwatch.desk.chain.calls import Server
    from omniwatch.desk.chain.session import Wanted
    from omniwatch.desk.chain.watch import Watch


@click.command()
@click.argument("questions", type=click.Path(path_type=Path))
@click.option("--native", metavar="URL", help="The model that hears and speaks.")
@click.option("--asr", metavar="URL", help="The cascade's speech recognition.")
@click.option("--llm", metavar="URL", help="The cascade's language model.")
@click.option("--tts", metavar="URL", help="The cascade's voice.")
@click.option(
    "--model",
    "models",
    metavar="PART=NAME",
    multiple=True,
    help="A part's model (native, asr, llm, tts); repeatable. [default: the first one the server names]",
)
@click.option(
    "--body",
    "bodies",
    metavar="PART=JSON",
    multiple=True,
    help="Further fields of a part's requests; repeatable.",
)
@click.option("--header", "headers", metavar="NAME:VALUE", multiple=True, help="Sent along to every server.")
@click.option(
    "--concurrency",
    "levels",
    default="1",
    show_default=True,
    metavar="N,N,...",
    help="Clients at once; each value is measured by itself.",
)
@click.option(
    "--turns",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Turns of each chain at each concurrency.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0, 1000),
    default=2,
    show_default=True,
    help="Turns before them that are left out.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Draws the order of chains and questions."
)
@click.option(
    "--interrupt",
    "interrupt_s",
    type=Number(0, 3600, min_open=True),
    metavar="S",
    help="Break off every other answer S seconds after its first speech, and ask the next question at once.",
)
@click.option(
    "--buffer-ms",
    type=Number(0, 10_000),
    default=80.0,
    show_default=True,
    help="What the listener's player holds back before it starts.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(0.1, 3600),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Give a turn up when nothing new came for so long.",
)
@click.option("--text-llm", is_flag=True, help="The cascade's LLM takes no pictures: leave them out there.")
@click.option(
    "--tts-rate-hz",
    type=Number(4000, 192_000),
    default=24_000.0,
    show_default=True,
    help="Sample rate of the voice's bare samples, where the answer does not state it.",
)
@click.option(
    "--watch",
    "watched",
    metavar="CHAIN=WHAT",
    multiple=True,
    help="Watch the memory of a PID, a unit or a container on this machine, as native= or cascade=; repeatable.",
)
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write the result, as JSON.")
@click.option(
    "--markdown", "markdown_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the tables."
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw them: .svg, .png or .pdf (omniwatch[plot]).",
)
def chain(
    questions: Path,
    native: str | None,
    asr: str | None,
    llm: str | None,
    tts: str | None,
    models: tuple[str, ...],
    bodies: tuple[str, ...],
    headers: tuple[str, ...],
    levels: str,
    turns: int,
    warmup: int,
    seed: int,
    interrupt_s: float | None,
    buffer_ms: float,
    timeout_s: float,
    text_llm: bool,
    tts_rate_hz: float,
    watched: tuple[str, ...],
    out: Path | None,
    markdown_file: Path | None,
    plot: Path | None,
) -> None:
    """Ask a speaking model and a chain of ASR, LLM and TTS the same spoken questions, and measure both.

    QUESTIONS is a folder of WAV files. Beside NAME.wav may stand NAME.txt (the words) and NAME.jpg, .png or .mp4. The
    servers speak OpenAI's API. With both chains up their turns are interleaved at random; else run twice and merge.

    Failed turns are results: they are counted, not repeated. Exit code: 0 when every turn was spoken to its end, 1 when
    not, 2 when a server cannot be reached at all.

    \b
    Example:
      omniwatch bench chain questions/ --native http://127.0.0.1:8000 --asr http://127.0.0.1:8001 \\
          --llm http://127.0.0.1:8002 --tts http://127.0.0.1:8003 --concurrency 1,2 --out both.json
      omniwatch bench chain questions/ --native http://127.0.0.1:8000 --watch native=qwen3-omni.service
    """
    try:
        from omniwatch.desk.chain.session import Wanted
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "httpx":
            raise
        raise UserError("bench chain needs a library: pip install 'omniwatch[bench]'") from error
    from omniwatch.desk.chain import questions as folder
    from omniwatch.desk.chain.watch import open_watch, parse

    urls = {"native": native, "asr": asr, "llm": llm, "tts": tts}
    try:
        wanted = Wanted(
            servers=_servers(urls, models, bodies, headers),
            questions=folder.read(questions),
            levels=_levels(levels),
            turns=turns,
            warmup=warmup,
            seed=seed,
            buffer_ms=buffer_ms,
            timeout_s=timeout_s,
            pictures=not text_llm,
            tts_rate_hz=tts_rate_hz,
            interrupt_s=interrupt_s,
        )
        if plot is not None:
            check_plot(plot)
        watch = open_watch([parse(text) for text in watched])
        result = _measured(wanted, watch)
        publish(result, out, markdown_file, plot)
    except OSError as error:
        raise os_error(error) from error
    if any(turn.outcome != "ok" for turn in result.turns):
        raise SystemExit(1)


def publish(result: Result, out: Path | None, markdown_file: Path | None, plot: Path | None) -> None:
    """Print a result's tables and write what was asked for. Raises OSError."""
    from omniwatch.desk.chain import results
    from omniwatch.desk.chain.tables import markdown, terminal
    from omniwatch.system import atomic_write

    if out is not None:
        results.write(out, result)
    if markdown_file is not None:
        atomic_write.replace(markdown_file, markdown(result).encode())
    if plot is not None:
        from omniwatch.desk.chain.plot import draw

        draw(result, plot)
    click.echo(terminal(result), nl=False)


def check_plot(path: Path) -> None:
    """Say before the work what would go wrong after it."""
    from omniwatch.desk.chain.plot import FORMATS
    from omniwatch.system import needed

    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise UserError(f"--plot {path}: expected a file name that ends in .svg, .png or .pdf")
    if not needed.is_there("matplotlib"):
        raise UserError("--plot needs a library: pip install 'omniwatch[plot]'")


def _servers(
    urls: dict[str, str | None], models: Sequence[str], bodies: Sequence[str], headers: Sequence[str]
) -> dict[str, Server]:
    import json
    from urllib.parse import urlsplit

    from omniwatch.desk.chain.calls import Server

    given = {part: url.rstrip("/").removesuffix("/v1") for part, url in urls.items() if url}
    missing = [part for part in ("asr", "llm", "tts") if part not in given]
    if not given or len(missing) in (1, 2):
        what = f"--{' and --'.join(missing)} missing" if given else "neither is given"
        raise UserError(f"expected --native, or --asr, --llm and --tts, or all four: {what}")
    for part, url in given.items():
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f'--{part}: expected http://HOST:PORT, got "{url}"')
    named = _by_part("--model", models, given)
    further: dict[str, Any] = {}
    for part, text in _by_part("--body", bodies, given).items():
        try:
            further[part] = json.loads(text)
        except ValueError as error:
            raise UserError(f"--body {part}: no JSON: {error}") from error
        if not isinstance(further[part], dict):
            raise UserError(f"--body {part}: expected a JSON object, got {text}")
    sent = {}
    for text in headers:
        name, colon, value = text.partition(":")
        if not colon or not name.strip().isascii() or not name.strip() or "\n" in text or "\r" in text:
            raise UserError(f'--header: expected NAME:VALUE, got "{text}"')
        sent[name.strip()] = value.strip()
    return {p: Server(p, url, named.get(p, ""), sent, further.get(p, {})) for p, url in given.items()}


def _by_part(option: str, texts: Sequence[str], given: dict[str, str]) -> dict[str, str]:
    from omniwatch.desk.chain import PARTS

    found = {}
    for text in texts:
        part, equals, value = text.partition("=")
        if not equals or part not in PARTS or not value:
            raise UserError(f'{option}: expected native=, asr=, llm= or tts= and a value, got "{text}"')
        if part not in given:
            raise UserError(f"{option}: {part} is not asked (--{part} is missing)")
        found[part] = value
    return found


def _levels(text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > 256 or len(set(found)) < len(found):
        raise UserError(f'--concurrency: expected numbers from 1 to 256 such as 1,2,4, got "{text}"')
    return found


def _measured(wanted: Wanted, watch: Watch) -> Result:
    import asyncio
    import datetime

    from omniwatch.desk.chain.session import measure

    whole = len(wanted.chains) * len(wanted.levels) * wanted.turns
    shown = sys.stderr.isatty()
    with contextlib.ExitStack() as stack:
        bar = (
            stack.enter_context(click.progressbar(length=whole, label="turns", file=sys.stderr))
            if shown
            else None
        )

        def done(turn: Turn, warmup: bool) -> None:
            if bar is not None and not warmup:
                bar.update(1)

        return asyncio.run(
            measure(
                wanted,
                clock=time.monotonic,
                began=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                machine=_machine(),
                watch=watch,
                done=done,
            )
        )


def _machine() -> dict[str, str | int | None]:
    import os
    import platform

    from omniwatch.host.memory import total_bytes

    return {"arch": platform.machine(), "cpus": os.cpu_count(), "memory_bytes": total_bytes()}
