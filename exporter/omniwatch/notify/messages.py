"""Turn an Alertmanager webhook into the message of a chat group: one per alert group, in Chinese or English."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

WORDS = {
    "en": {
        "summary": "summary",
        "why": "why",
        "firing": "FIRING",
        "resolved": "RESOLVED",
        "on": "on",
        "since": "since",
        "lasted": "lasted",
        "runbook": "Runbook",
        "dashboard": "Dashboard",
        "access": "Device",
        "more": "and {} more",
        "merged": "{} messages in one, there were too many",
        "hours": "h",
        "minutes": "min",
        "seconds": "s",
        "colon": ": ",
        "comma": ", ",
    },
    "zh": {
        "summary": "summary_zh",
        "why": "why_zh",
        "firing": "告警",
        "resolved": "恢复",
        "on": "·",
        "since": "开始于",
        "lasted": "持续",
        "runbook": "处理手册",
        "dashboard": "监控面板",
        "access": "登录设备",
        "more": "另有 {} 条",
        "merged": "消息过多，{} 条合并为一条",
        "hours": "小时",
        "minutes": "分",
        "seconds": "秒",
        "colon": "：",
        "comma": "，",
    },
}
MAX_ALERTS = 10
"""Alerts of a group that a message lists; of the others it gives the number."""
YEARS = range(1971, 9999)
"""Years of an alert's times: with any time zone they stay within what Python's calendar has."""
MAX_NAME = 100
"""Characters of an alert's, a device's and a site's name in a title. A robot has no bound of its own for these."""
MAX_TEXT = 1000
"""Characters of each other text."""
MAX_ADDRESS = 2000
"""Characters of an address that is linked: a part of one leads nowhere."""
MAX_KEY = 512
"""Characters of a group's key that are kept; a longer one is known by its hash."""
NOT_TEXT = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
"""Controls, and what is not seen but turns or parts the words beside it."""
LINK = re.compile(r"\](?=\()")
CODE = str.maketrans({"`": "'", "<": "\N{FULLWIDTH LESS-THAN SIGN}", ">": "\N{FULLWIDTH GREATER-THAN SIGN}"})
Escape = Callable[[str], str]
"""Write one line of text so that a robot shows it as it is."""
Time = Annotated[datetime, Meta(tz=True)]
Status = Literal["firing", "resolved"]


class Alert(msgspec.Struct, frozen=True, rename="camel"):
    """One alert of a group. `ends_at` is year 1 while it fires."""

    status: Status
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: Time
    ends_at: Time

    def __post_init__(self) -> None:
        """Refuse times that no calendar reckons with. Raises ValueError."""
        times = [self.starts_at, self.ends_at] if self.status == "resolved" else [self.starts_at]
        if any(time.year not in YEARS for time in times):
            raise ValueError(f"a time outside the years {YEARS[0]} to {YEARS[-1]}")


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of Alertmanager's webhook (version 4) that a message is made of."""

    status: Status
    group_key: str
    group_labels: dict[str, str]
    alerts: list[Alert]


class Message(NamedTuple):
    """A message: its title as plain text, its text in a robot's Markdown.

    A later one of the same `group` takes the place of one that has not left yet. `first`: of this group
    nothing was sent before. People are called by its first message only.
    """

    group: str
    severity: str
    firing: bool
    title: str
    text: str
    first: bool = True


def decode(body: bytes) -> Group:
    """Read a webhook's body. Raises ValueError, in one line."""
    try:
        group = msgspec.json.decode(body, type=Group)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if len(group.group_key) > MAX_KEY:
        group = msgspec.structs.replace(group, group_key=hashlib.sha256(group.group_key.encode()).hexdigest())
    return group


def compose(
    group: Group,
    severity: str,
    language: str,
    zone: tzinfo | None,
    *,
    worst_first: Sequence[str] = (),
    first: bool = True,
    escape: Escape = str,
) -> Message:
    """Write the message of a group, times in `zone` (None: the device's own); what the webhook says is written by `escape`.

    The worst alert comes first and names the message: one that fires, then by its place in `worst_first`, then by its age.
    """
    words = WORDS[language]
    ranks = {name: rank for rank, name in enumerate(worst_first)}

    def badness(alert: Alert) -> tuple[bool, int, datetime]:
        rank = ranks.get(alert.labels.get("alertname", ""), len(ranks))
        return alert.status != "firing", rank, alert.starts_at

    alerts = sorted(group.alerts, key=badness)
    worst = alerts[0] if alerts else None
    annotations = worst.annotations if worst else {}
    name = plain(worst.labels.get("alertname", "alerts") if worst else "alerts", MAX_NAME)
    device, site = (plain(_common(alerts, label), MAX_NAME) for label in ("device", "site"))
    title = f"[{words[group.status]}] {name}" + (f" {words['on']} {device}" if device else "")
    title += f" ({site})" if site else ""
    # Why the turns were bad stands in the first line, of the worst alert; of another one, where that says otherwise, in its own.
    why = annotations.get(words["why"], "")
    lines = [
        line for alert in alerts[:MAX_ALERTS] for line in _alert_lines(alert, words, zone, escape, above=why)
    ]
    if len(alerts) > MAX_ALERTS:
        lines.append(words["more"].format(len(alerts) - MAX_ALERTS))
    summary, reason = (escape(plain(text)) for text in (annotations.get(words["summary"], ""), why))
    head = " ".join(filter(None, [f"**{summary}**" if summary else "", reason]))
    links = [link for kind in ("dashboard", "runbook") for link in _link(kind, annotations, words, escape)]
    # Where no address is set: the command, to be run on the device.
    command = "" if "runbook_url" in annotations else code(annotations.get("runbook", ""))
    # As code, so that it can be copied.
    access = code(annotations.get("access", ""))
    lines = [
        *([head] if head else []),
        *lines,
        *([" | ".join(links)] if links else []),
        *([f"{words['runbook']}{words['colon']}`{command}`"] if command else []),
        *([f"{words['access']}{words['colon']}`{access}`"] if access else []),
    ]
    return Message(group.group_key, severity, group.status == "firing", title, "\n\n".join(lines), first)


def _common(alerts: Sequence[Alert], label: str) -> str:
    """Return the value that all alerts have of a label; "" where they differ."""
    values = {alert.labels.get(label, "") for alert in alerts}
    return values.pop() if len(values) == 1 else ""


def plain(text: str, most: int = MAX_TEXT) -> str:
    """Return a text in one line of at most so many characters, all of them seen."""
    line = NOT_TEXT.sub(" ", text).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def code(text: str) -> str:
    """Return a text as it may stand in code. There is no escape in it, and some clients know no code: what would end it, call
    people or link is written by signs that look alike.
    """
    return LINK.sub("\N{FULLWIDTH RIGHT SQUARE BRACKET}", plain(text).translate(CODE))


def merge(messages: Sequence[Message], language: str, escape: Escape = str) -> Message:
    """Make one message of several, which have a language in common: a page only where a page among them still fires."""
    firing = [message for message in messages if message.firing]
    parts = [f"**{escape(message.title)}**\n\n{message.text}" for message in messages]
    return Message(
        " ".join(message.group for message in messages),
        min(message.severity for message in firing or messages),
        bool(firing),
        WORDS[language]["merged"].format(len(messages)),
        "\n\n---\n\n".join(parts),
        any(message.first for message in firing if message.severity == "page"),
    )


def _alert_lines(
    alert: Alert, words: dict[str, str], zone: tzinfo | None, escape: Escape, above: str
) -> list[str]:
    begun = f"{words['since']} {alert.starts_at.astimezone(zone):%m-%d %H:%M:%S %Z}".rstrip()
    if alert.status == "resolved":
        begun += f"{words['comma']}{words['lasted']} {duration((alert.ends_at - alert.starts_at).total_seconds(), words)}"
    said = alert.annotations.get("description") or alert.annotations.get("summary", "")
    why = alert.annotations.get(words["why"], "")
    name = alert.labels.get("alertname", "")
    if cause := alert.labels.get("cause") or alert.annotations.get("cause"):
        name += f" ({cause})"
    colon = words["colon"]
    sentence = escape(plain(f"{f'{name}{colon}' if name else ''}{said}"))
    reason = [escape(plain(why))] if why not in ("", above) else []
    return [" ".join([f"{words[alert.status]}{colon}{sentence}", *reason]), begun]


def _link(kind: str, annotations: dict[str, str], words: dict[str, str], escape: Escape) -> list[str]:
    """Return a link to an address of the web, and what is none as text."""
    address = plain(annotations.get(f"{kind}_url", ""), MAX_ADDRESS)
    if not address or len(address) == MAX_ADDRESS:
        return []
    if not address.startswith(("https://", "http://")):
        return [f"{words[kind]}{words['colon']}{escape(address)}"]
    # Nothing in it may end the link or begin a tag; what is quoted already stays so.
    quoted = urllib.parse.quote(address, safe=":/?#[]@!$&+,;=%~")
    return [f"[{words[kind]}]({quoted})"]


def duration(seconds: float, words: dict[str, str]) -> str:
    """Write a time in the two largest of hours, minutes and seconds: `3 min 20 s`."""
    whole = max(0, round(seconds))
    parts = (whole // 3600, whole % 3600 // 60, whole % 60)
    units = [words["hours"], words["minutes"], words["seconds"]]
    written = [f"{part} {unit}" for part, unit in zip(parts, units, strict=True) if part]
    return " ".join(written[:2]) or f"0 {units[2]}"
