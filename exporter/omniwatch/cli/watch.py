"""Show the listeners of a sidecar in this terminal: the live page without a browser."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from omniwatch.cli import config_option
from omniwatch.system.errors import UserError

TIMEOUT_S = 5.0
EACH_S = 1.0
BUSY_S = 5.0
"""Seconds until the next question to a sidecar that has too much to do."""
MOST_BYTES = 8_000_000


@click.command()
@click.argument("url", required=False)
@config_option("Names the sidecar: site.exporter.")
@click.option("--once", is_flag=True, help="Print one frame and exit, as without a terminal that can draw.")
@click.option("--user", help="Name for the sidecar's login.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that holds the password for --user.",
)
@click.option(
    "--ca-file", type=click.Path(path_type=Path, dir_okay=False), help="Certificates to trust for https."
)
@click.pass_context
def command(
    ctx: click.Context,
    url: str | None,
    config_file: Path | None,
    once: bool,
    user: str | None,
    password_file: Path | None,
    ca_file: Path | None,
) -> None:
    """Show the sidecar at URL each second: its state in words, both curves of the worst listener, a row for each.

    URL is http://site.exporter by default. Ctrl-C ends it. The language is that of LC_ALL or LANG, English or Chinese.

    With --once the exit code is 0 when all is well. It is 1 when somebody suffers, or the sidecar cannot see. It is 2 when
    the sidecar is not reached.

    \b
    Example:
      omniwatch watch
      omniwatch watch --once
      omniwatch watch https://orin.example:9842 --user ops --password-file ~/.omniwatch --ca-file ca.pem
    """
    from rich.console import Console
    from rich.live import Live

    from omniwatch import settings
    from omniwatch.watch.frame import frame
    from omniwatch.watch.window import Window
    from omniwatch.web import words

    address = (url or f"http://{settings.load(config_file).site.exporter}").rstrip("/")
    headers = _login(user, password_file)
    context = _trust(ca_file)
    language = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    strings = words.load()["zh" if language.startswith("zh") else "en"]
    console = Console(highlight=False)
    plain, window = console.options.ascii_only, Window()
    if plain:
        strings = words.load()["en"]
    window.take(_ask(address, "", headers, context))
    if once or not console.is_terminal or console.is_dumb_terminal:
        console.print(frame(window, strings, console.width, 10_000, plain=plain))
        ctx.exit(0 if window.feed["state"]["level"] == "well" else 1)
    lost_t: float | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                shown = frame(window, strings, console.width, console.height, plain=plain, lost_t=lost_t)
                live.update(shown, refresh=True)
                time.sleep(EACH_S)
                try:
                    window.take(_ask(address, window.cursor, headers, context))
                    lost_t = None
                except BusyError:
                    time.sleep(BUSY_S)
                except LostError:
                    lost_t = lost_t or time.time()
    except KeyboardInterrupt:
        pass


class LostError(UserError):
    """The sidecar does not answer."""


class BusyError(LostError):
    """The sidecar has too much to do."""


def _login(user: str | None, password_file: Path | None) -> dict[str, str]:
    if (user is None) != (password_file is None):
        raise UserError("--user and --password-file: give both or none")
    if user is None or password_file is None:
        return {}
    from omniwatch.system import user_file

    try:
        password = user_file.read(password_file).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{password_file}: {getattr(error, 'strerror', None) or error}") from error
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _trust(ca_file: Path | None) -> ssl.SSLContext | None:
    if ca_file is None:
        return None
    from omniwatch.system import user_file

    try:
        return ssl.create_default_context(cadata=user_file.read(ca_file).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--ca-file {ca_file}: {getattr(error, 'strerror', None) or error}") from error


def _ask(
    address: str, cursor: str, headers: dict[str, str], context: ssl.SSLContext | None
) -> dict[str, Any]:
    """Return the feed since a cursor. Raises LostError where there is no answer, UserError where asking again is no use."""
    from omniwatch.system import http

    url = f"{address}/live.json"
    try:
        with http.ask(
            f"{url}?since={quote(cursor)}", timeout_s=TIMEOUT_S, headers=headers, context=context
        ) as answer:
            if answer.status in (401, 403):
                raise UserError(
                    f"{url}: a login is needed: --user and --password-file"
                    if answer.status == 401
                    else f"{url}: the sidecar does not go by this name; add it to site.hosts"
                )
            if answer.status in (429, 503):
                raise BusyError(f"{url}: the sidecar has too much to do")
            if not answer.ok:
                raise LostError(f"{url}: status {answer.status}")
            found: dict[str, Any] = json.loads(answer.read(MOST_BYTES))
            return found
    except http.HttpError as error:
        raise LostError(f"{url}: {error}") from error
    except ValueError as error:
        raise LostError(f"{url}: not the feed of a sidecar") from error
