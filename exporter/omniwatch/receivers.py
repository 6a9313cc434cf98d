"""Where alerts go: what Alertmanager sends to itself, and the chat robots that `omniwatch notify` speaks for.

A secret is never in the settings nor in a rendered file: a `_file` names a file that holds it, alone, on one line.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Url = Annotated[str, Meta(pattern="^(https?://.*)?$")]
Severity = Literal["page", "ticket"]


class Channels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Alertmanager itself reaches people with alerts of one severity; what is empty is not used."""

    pagerduty_routing_key_file: str = ""
    slack_api_url_file: str = ""
    slack_channel: str = ""
    """The Slack webhook's own channel unless named."""
    email_to: str = ""


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server that takes e-mail; needed when an `email_to` is set."""

    smarthost: str = "localhost:25"
    sender: str = "omniwatch@localhost"
    username: str = ""
    password_file: str = ""
    require_tls: bool = True


class Receivers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Alertmanager sends what it is given."""

    page_webhook_url: Url = "http://127.0.0.1:9095/page"
    """`omniwatch notify` on this device; empty, no webhook."""
    ticket_webhook_url: Url = "http://127.0.0.1:9095/ticket"
    watchdog_webhook_url: Url = ""
    """A dead man's switch elsewhere: it raises the alarm when this device's Watchdog no longer calls."""
    page: Channels = Channels()
    ticket: Channels = Channels()
    mail: Mail = Mail()


class Robot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A robot of a chat group."""

    kind: Literal["dingtalk", "feishu", "wecom"]
    url_file: Annotated[str, Meta(min_length=1)]
    """Holds the robot's address, whose token is a secret."""
    secret_file: str = ""
    """Holds the secret that messages are signed with (DingTalk, Feishu); empty, they are not signed."""
    language: Literal["zh", "en"] = "zh"
    severities: list[Severity] = msgspec.field(default_factory=lambda: ["page", "ticket"])
    mention: list[str] = []
    """Who is called when a page fires: mobile numbers (DingTalk, WeCom) or user ids (Feishu)."""


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`omniwatch notify`: the bridge from Alertmanager's webhook to chat robots."""

    listen_address: str = "127.0.0.1:9095"
    timezone: str = ""
    """IANA name, as Asia/Shanghai, of the time in messages; empty, the device's own."""
    per_minute: Annotated[int, Meta(ge=1, le=20)] = 20
    """Messages to one robot: past 20 a minute DingTalk mutes it for ten minutes."""
    try_for_s: Annotated[float, Meta(gt=0)] = 600
    """A message that cannot be delivered for so long is given up."""
    timeout_s: Annotated[float, Meta(gt=0)] = 10
    """How long a robot may take to answer."""
    robots: list[Robot] = []
