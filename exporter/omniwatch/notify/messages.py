"""Turn an Alertmanager webhook into the message of a chat group: one per alert group, in Chinese or English."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

import msgspec

WORDS = {
    "en": {
        "summary": "summary",
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
    },
    "zh": {
        "summary": "summary_zh",
        "firing": "告警",
        "resolved": "恢复",
        "on": "·",
        "since": "开始于",
        "lasted": "持续",
        "runbook": "处理手册",
        "dashboard": "监控面板",
        "access": "登录设备",
        "more": "另有 {} 条",
        "merged": "消息过多,{} 条合并为一条",
        "hours": "小时",
        "minutes": "分",
        "seconds": "秒",
    },
}
MAX_ALERTS = 10
"""So many alerts of a group are told one by one."""


class Alert(msgspec.Struct, frozen=True, rename="camel"):
    """One alert of a group. `ends_at` is year 1 while it fires."""

    status: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: datetime
    ends_at: datetime


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """As much of Alertmanager's webhook (version 4) as is told."""

    status: str
    group_key: str
    group_labels: dict[str, str]
    alerts: list[Alert]


class Message(NamedTuple):
    """A message in Markdown. A later one of the same `group` takes the place of one that has not left yet.

    `first` is whether nobody was told of the group before: people are called by its first message only.
    """

    group: str
    severity: str
    firing: bool
    title: str
    text: str
    first: bool = True


def decode(body: bytes) -> Group:
    """Read a webhook's body. Raises ValueError."""
    return msgspec.json.decode(body, type=Group)


def compose(
    group: Group,
    severity: str,
    language: str,
    zone: tzinfo | None,
    *,
    worst_first: Sequence[str] = (),
    first: bool = True,
) -> Message:
    """Write the message of a group, times in `zone` (None: the device's own).

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
    name = worst.labels.get("alertname", "alerts") if worst else "alerts"
    device, site = (_common(alerts, label) for label in ("device", "site"))
    title = f"[{words[group.status]}] {name}" + (f" {words['on']} {device}" if device else "")
    title += f" ({site})" if site else ""
    lines = [line for alert in alerts[:MAX_ALERTS] for line in _told(alert, words, zone)]
    if len(alerts) > MAX_ALERTS:
        lines.append(words["more"].format(len(alerts) - MAX_ALERTS))
    summary = annotations.get(words["summary"], "")
    links = [*_link("dashboard", annotations, words), *_link("runbook", annotations, words)]
    # As code nothing in it is Markdown, nor does it call anybody.
    access = annotations.get("access", "").replace("`", "'")
    lines = [
        *([f"**{summary}**"] if summary else []),
        *lines,
        *([" | ".join(links)] if links else []),
        *([f"{words['access']}: `{access}`"] if access else []),
    ]
    return Message(group.group_key, severity, group.status == "firing", title, "\n\n".join(lines), first)


def _common(alerts: Sequence[Alert], label: str) -> str:
    """Return the value that all alerts have of a label; "" where they differ."""
    values = {alert.labels.get(label, "") for alert in alerts}
    return values.pop() if len(values) == 1 else ""


def merge(messages: Sequence[Message], language: str) -> Message:
    """Make one message of several, which have a language in common: a page only where a page among them still fires."""
    firing = [message for message in messages if message.firing]
    parts = [f"**{message.title}**\n\n{message.text}" for message in messages]
    return Message(
        " ".join(message.group for message in messages),
        min(message.severity for message in firing or messages),
        bool(firing),
        WORDS[language]["merged"].format(len(messages)),
        "\n\n---\n\n".join(parts),
        any(message.first for message in firing if message.severity == "page"),
    )


def _told(alert: Alert, words: dict[str, str], zone: tzinfo | None) -> list[str]:
    begun = f"{words['since']} {alert.starts_at.astimezone(zone):%m-%d %H:%M:%S %Z}".rstrip()
    if alert.status == "resolved":
        begun += f", {words['lasted']} {duration((alert.ends_at - alert.starts_at).total_seconds(), words)}"
    said = alert.annotations.get("description") or alert.annotations.get("summary", "")
    name = alert.labels.get("alertname", "")
    if cause := alert.labels.get("cause"):
        name += f" ({cause})"
    return [f"{words[alert.status]}: {f'{name}: ' if name else ''}{said}", begun]


def _link(kind: str, annotations: dict[str, str], words: dict[str, str]) -> list[str]:
    address = annotations.get(f"{kind}_url")
    return [f"[{words[kind]}]({address})"] if address else []


def duration(seconds: float, words: dict[str, str]) -> str:
    """Write a time in the two largest of hours, minutes and seconds: `3 min 20 s`."""
    whole = max(0, round(seconds))
    parts = (whole // 3600, whole % 3600 // 60, whole % 60)
    units = [words["hours"], words["minutes"], words["seconds"]]
    told = [f"{part} {unit}" for part, unit in zip(parts, units, strict=True) if part]
    return " ".join(told[:2]) or f"0 {units[2]}"
