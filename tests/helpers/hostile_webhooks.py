"""Webhooks as nobody should send them, from a list and made up at random."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from typing import Any

from helpers.chat_formats import shown
from helpers.fake_robots import webhook
from omniwatch.notify import messages, robots
from omniwatch.settings.receivers import Robot

TEXTS = (
    "<at id=all></at>",
    "<@all>",
    "<!channel>",
    "<https://evil.example|runbook>",
    "[runbook](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "a\n# Heading\n> quote\n- list",
    "\r\n\u2028**bold** `code` ~~gone~~ *it* _it_",
    "<font color=red>red</font>",
    "&lt;at id=all&gt;&lt;/at&gt; &#60;@all&#62;",
    "\\[runbook\\](https://evil.example) \\<@all>",
    "` <@all> `",
    "**<at id=all></at>",
    "![x](https://evil.example/x.png) [x](https://evil.example)",
    ":OK: :DONE: at 09:00:00",
    "a backslash \\",
    "\u202eturned\u2066 and \u200bparted\U000e0041",
)
BEGAN = b"2026-11-21T09:00:00.5Z"


def texts() -> tuple[str, ...]:
    """Return what is more than text to one chat system or another."""
    return TEXTS


def line(text: str) -> str:
    """Return a text as it may stand in a message: controls and what is not seen are spaces."""
    return " ".join("".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in text).split())


def refused() -> dict[str, bytes]:
    """Return bodies that are no webhook, by what is wrong with them."""
    good = webhook()
    two = json.loads(webhook(count=2))
    two["alerts"][0]["startsAt"] = "2026-11-21T09:00:00"
    return {
        "year 1": good.replace(BEGAN, b"0001-01-01T00:00:00Z"),
        "year 9999": good.replace(BEGAN, b"9999-12-31T23:59:59Z"),
        "resolved in year 1": webhook(status="resolved").replace(
            b"2026-11-21T09:03:20.5Z", b"0001-01-01T00:00:00Z"
        ),
        "naive": good.replace(BEGAN, b"2026-11-21T09:00:00"),
        "naive beside aware": json.dumps(two).encode(),
        "deep": b"[" * 100_000,
        "deep within": good.replace(b'"version": "4"', b'"x": ' + b"[" * 100_000 + b"]" * 100_000),
        "digits": good.replace(b'"%b"' % BEGAN, b"9" * 100_000),
        "a status of its own": good.replace(b'"firing"', b'"smouldering"'),
        "a lone surrogate": good.replace(b"Voice and", b"\\ud800"),
        "no UTF-8": good.replace(b"Voice and", b"\xff\xfe"),
        "labels that are numbers": good.replace(b'"orin"', b"7"),
        "empty": b"",
        "NUL": b"\0" * 1000,
    }


def play(seed: int, counts: Counter[str]) -> str:
    """Make up a webhook and have each robot tell it. Returns what is wrong, "" for nothing."""
    luck = random.Random(seed)
    body = _mutated(luck) if luck.random() < 0.5 else _written(luck)
    try:
        group = messages.decode(body)
    except ValueError as error:
        counts["refused"] += 1
        return "" if "\n" not in str(error) else f"seed {seed}: {error}"
    counts["taken"] += 1
    for kind in robots.discover():
        robot = robots.of(Robot(kind=kind, url_file="u"))
        try:
            told = messages.compose(group, "page", luck.choice(("zh", "en")), None, escape=robot.escape)
            robot.request("https://r.example/s", "", told, 0)
        except Exception as error:
            return f"seed {seed}, {kind}: {type(error).__name__}: {error}"
        found = shown(kind, robot.cut(told))
        evil = [link for link in found.links if "evil" in link]
        if found.calls or evil or "\n" in told.title:
            return f"seed {seed}, {kind}: calls {found.calls}, links {evil} in {told!r}"
    return ""


def _written(luck: random.Random) -> bytes:
    group: dict[str, Any] = json.loads(
        webhook(count=luck.randrange(4), status=luck.choice(("firing", "resolved")))
    )
    for alert in group["alerts"]:
        for fields, names in (
            ("labels", ("alertname", "device", "site", "cause")),
            ("annotations", ("summary", "summary_zh", "why", "why_zh", "description", "access")),
        ):
            for name in names:
                alert[fields][name] = "".join(
                    luck.choices((*TEXTS, *"<>[]()*_`\\@!&# \n"), k=luck.randrange(5))
                )
    return json.dumps(group).encode()


def _mutated(luck: random.Random) -> bytes:
    body = bytearray(luck.choice((webhook(), webhook(status="resolved", count=3), *refused().values())))
    for _ in range(luck.randrange(4)):
        at = luck.randrange(len(body) + 1)
        body[at : at + luck.randrange(3)] = luck.choice(
            (b"9" * 5000, b"[" * 5000, b'"', b"\\", b"-", b"", b"0001", b"9999")
        )
    return bytes(body)
