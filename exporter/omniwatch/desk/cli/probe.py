"""Ask a server as a client would, and measure its answers."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omniwatch.cli import Number, shows_progress
from omniwatch.system import ports
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.probe import Client, Limits, Turn
    from omniwatch.desk.probe.target import Target
    from omniwatch.desk.probe.transcript import Transcriber
    from omniwatch.desk.probe.turn import Asking


POSITIVE = Number(min=0, min_open=True)
LIMIT = Number(min=0)
FPS = Number(min=0.5, max=120)


@click.command()
@click.argument("url")
@click.option(
    "--audio",
    "audio",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For realtime: ask by this WAV file (16-bit, mono, 24 kHz; 16 kHz for vLLM-Omni 0.30), at real pace.",
)
@click.option(
    "--interrupt",
    "interrupt_s",
    type=POSITIVE,
    metavar="S",
    help="For realtime: speak up S seconds into each answer, and tell how long speech still comes.",
)
@click.option("--turns", default=3, show_default=True, type=click.IntRange(min=1), help="Questions in a row.")
@click.option(
    "--text",
    default="Please count from one to twenty.",
    show_default=True,
    help="What is asked; it should take some seconds to answer.",
)
@click.option("--model", help="For chat and realtime. [default, for chat: the first one the server names]")
@click.option(
    "--fps", default=10.0, show_default=True, type=FPS, help="For video: frames a second of the picture."
)
@click.option(
    "--buffer-ms",
    default=80.0,
    show_default=True,
    type=LIMIT,
    help="What the listener's player holds back before it starts.",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=30.0,
    show_default=True,
    type=POSITIVE,
    metavar="S",
    help="Seconds without data after which a turn has failed.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Sent along; may be given more than once.",
)
@click.option("--max-rtt-ms", type=LIMIT, help="Limit for the time from text sent to first speech received.")
@click.option("--max-underrun-ms", type=LIMIT, help="Limit for the silence within a turn, in all.")
@click.option("--max-drift-ms", type=LIMIT, help="Limit for the drift, either way.")
@click.option(
    "--asr",
    "asr_url",
    metavar="URL",
    help="Have the speech transcribed there (OpenAI's API), and count the words that differ from the text.",
)
@click.option(
    "--max-wer", "max_wer", type=LIMIT, metavar="PERCENT", help="Limit for the word error rate; needs --asr."
)
@click.option("--report", is_flag=True, help="Tell the server's tap each turn's time to first speech.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--interval",
    "interval_s",
    type=POSITIVE,
    metavar="S",
    help="Run a round of turns every S seconds, without end, and serve /metrics.",
)
@click.option(
    "--web.listen-address",
    "listen",
    default=f"127.0.0.1:{ports.PROBE}",
    show_default=True,
    metavar="ADDRESS",
    help="Where to serve, with --interval.",
)
def command(
    url: str,
    audio: Path | None,
    interrupt_s: float | None,
    turns: int,
    text: str,
    model: str | None,
    fps: float,
    buffer_ms: float,
    timeout_s: float,
    headers: tuple[str, ...],
    max_rtt_ms: float | None,
    max_underrun_ms: float | None,
    max_drift_ms: float | None,
    asr_url: str | None,
    max_wer: float | None,
    report: bool,
    as_json: bool,
    interval_s: float | None,
    listen: str,
) -> None:
    """Talk to the server at URL: http://HOST:PORT for chat with speech, ws://HOST:PORT for the video websocket. At
    ws://HOST:PORT/v1/realtime it is a realtime session, in the dialect that the server's greeting names.

    Each turn is listened to with a playout buffer, on this machine's clock. Printed are the time to the first speech, the
    silence within it, and the drift between voice and picture. For chat and realtime, drift is against real time.

    Exit code: 0 when every turn was spoken to its end and within the limits given, 1 when not. It is 2 when the server cannot
    be reached at all.

    \b
    Example:
      omniwatch probe http://127.0.0.1:8000
      omniwatch probe http://127.0.0.1:8000 --asr http://127.0.0.1:8001 --max-wer 10
      omniwatch probe ws://127.0.0.1:8000 --turns 5 --max-rtt-ms 800 --max-drift-ms 60
      omniwatch probe ws://127.0.0.1:8000/v1/realtime --audio question.wav --interrupt 2
      omniwatch probe http://127.0.0.1:8000 --interval 60 --report --header "Authorization: Bearer KEY"
    """
    from omniwatch.desk.probe import Limits
    from omniwatch.desk.probe.reporter import Reporter
    from omniwatch.desk.probe.sound import read_sound
    from omniwatch.desk.probe.target import parse
    from omniwatch.desk.probe.turn import Asking

    try:
        target = parse(url)
    except ValueError as error:
        raise UserError(f"URL: {error}") from error
    sent = dict(map(_header, headers))
    reporter = Reporter(target, sent) if report else None
    transcriber = _transcriber(asr_url, timeout_s)
    if max_wer is not None and transcriber is None:
        raise UserError("--max-wer: needs --asr")
    if interval_s is not None and transcriber is not None:
        raise UserError("--asr: not with --interval")
    if target.kind != "realtime" and (audio is not None or interrupt_s is not None):
        option = "--audio" if audio is not None else "--interrupt"
        raise UserError(f"{option}: only for a realtime session, ws://HOST:PORT/v1/realtime")
    asking = Asking(
        text,
        timeout_s,
        buffer_ms,
        fps,
        model,
        sent,
        reporter,
        transcriber,
        sound=None if audio is None else read_sound(audio),
        interrupt_s=interrupt_s,
    )
    limits = Limits(max_rtt_ms, max_underrun_ms, max_drift_ms, max_wer)
    if interval_s is None:
        _once(target, asking, turns, limits, as_json)
    elif as_json:
        raise UserError("--json: not with --interval, whose results are at /metrics")
    else:
        _for_ever(target, asking, turns, limits, interval_s, listen)


def _transcriber(url: str | None, timeout_s: float) -> Transcriber | None:
    from omniwatch.desk.probe.target import parse
    from omniwatch.desk.probe.transcript import PATH, Transcriber

    if url is None:
        return None
    try:
        target = parse(url.rstrip("/").removesuffix(PATH))
    except ValueError as error:
        raise UserError(f'--asr: expected http://HOST:PORT, got "{url}"') from error
    if target.kind != "chat":
        raise UserError(f'--asr: expected http://HOST:PORT, got "{url}"')
    return Transcriber(target, timeout_s)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip().isascii() or not name.strip() or "\n" in text or "\r" in text:
        raise UserError(f'--header: expected NAME:VALUE, got "{text}"')
    return name.strip(), value.strip()


def _once(target: Target, asking: Asking, turns: int, limits: Limits, as_json: bool) -> None:
    from omniwatch.desk.probe import rounds

    found: list[Turn] = []
    for turn in rounds.converse(_client(target, asking), turns):
        if not found and turn.outcome == "unreachable":
            raise UserError(f"cannot reach {turn.detail}")
        if not as_json:
            click.echo(
                "\n".join(
                    (
                        []
                        if found
                        else [
                            rounds.heading(
                                words=asking.transcriber is not None, stale=asking.interrupt_s is not None
                            )
                        ]
                    )
                    + [rounds.row(turn)]
                )
            )
        elif shows_progress():
            click.echo(f"\rturn {turn.number} of {turns}", nl=turn.number == turns, err=True)
        found.append(turn)
    if asking.reporter is not None and asking.reporter.error is not None:
        click.echo(f"not reported: {asking.reporter.error}", err=True)
    problems = rounds.exceeded(found, limits)
    click.echo(
        rounds.as_json(target, found, limits) if as_json else "\n".join(problems),
        nl=bool(as_json or problems),
    )
    if problems:
        raise SystemExit(1)


def _for_ever(
    target: Target, asking: Asking, turns: int, limits: Limits, interval_s: float, listen: str
) -> None:
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

    from omniwatch.desk.probe.blackbox import Blackbox
    from omniwatch.system import log
    from omniwatch.web.server import serve

    log.setup("info", "logfmt")
    registry = CollectorRegistry()
    blackbox = Blackbox(lambda: _client(target, asking), turns, limits, registry, asking.reporter)
    ProcessCollector(registry=registry)
    _client(target, asking).close()
    server = serve([listen], make_wsgi_app(registry))
    # A turn may be waiting for the server just then: an exception ends that, a flag would not.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(0))
    logger = logging.getLogger("omniwatch")
    logger.info("probing", extra={"fields": {"url": target.url, "metrics": " ".join(server.urls)}})
    with server:
        blackbox.run(interval_s, threading.Event())


def _client(target: Target, asking: Asking) -> Client:
    from omniwatch.desk.probe.rounds import open_client

    try:
        return open_client(target, asking)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("anyio", "websockets"):
            raise
        raise UserError("a websocket needs a library: pip install 'omniwatch[probe]'") from error
