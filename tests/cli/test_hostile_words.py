"""What a server says, and what others wrote, reaches a terminal and the log without a command to it."""

from __future__ import annotations

import io
import json
import logging

import pytest
from click.testing import CliRunner

from helpers.fake_prometheus import centre
from helpers.hostile_http import OK, hostile
from omniwatch.bundle.alertmanager import Alertmanager
from omniwatch.centre.status import DeviceStatus, table
from omniwatch.cli import main
from omniwatch.settings import Settings
from omniwatch.system import log

COMMANDS = "\x1b[2J\x1b]0;own\x07\x9b31m\u202e\x7f"
"""To clear the screen, to name the window, to colour and to turn what follows around."""


def is_plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (200, json.dumps({"status": "error", "error": COMMANDS})),
        (422, json.dumps({"status": "error", "error": COMMANDS})),
        (503, COMMANDS),
    ],
)
def test_a_centres_words_in_an_error(code: int, body: str) -> None:
    with centre(code=code, body=body.encode()) as (url, _):
        done = CliRunner().invoke(main, ["fleet", "status", "--prometheus.url", url])
    assert done.exit_code == 2
    assert "\\x1b[2J" in done.stderr
    assert is_plain(done.stderr)


def test_a_centres_names_in_the_table() -> None:
    names = dict.fromkeys(("device", "site", "release"), COMMANDS)
    row = DeviceStatus(**names, state="pages", listed=True, pages=[COMMANDS], tickets=[COMMANDS])
    assert is_plain(table([row]))
    assert "\\x1b[2J" in table([row])


def test_an_alertmanagers_names_of_its_integrations() -> None:
    page = f'alertmanager_notification_requests_total{{integration="{COMMANDS}"}} 1\n'.encode()
    with hostile(lambda: [OK + b"Content-Length: %d\r\n\r\n" % len(page) + page]) as url:
        assert all(map(is_plain, Alertmanager(url, Settings()).sent()))


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_the_log(form: str) -> None:
    stream = io.StringIO()
    log.setup("info", form, stream)
    for value in (COMMANDS, f"a {COMMANDS}", COMMANDS.encode(), "\u591a\u8c22", ""):
        logging.getLogger("omniwatch").warning("a turn was not good", extra={"fields": {"problem": value}})
    written = stream.getvalue()
    assert is_plain(written)
    assert "\u591a\u8c22" in written
    if form == "json":
        assert json.loads(written.splitlines()[0])["problem"] == COMMANDS
