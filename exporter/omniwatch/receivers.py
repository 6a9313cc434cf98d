"""Where alerts go: what Alertmanager sends to itself, and the chat robots that `omniwatch notify` speaks for.

A secret is never in the settings nor in a rendered file: a `_file` names a file that holds it, alone, on one line.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from omniwatch.addresses import joined

Url = Annotated[str, Meta(pattern="^(https?://.*)?$")]
Severity = Literal["page", "ticket"]


class Channels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Alertmanager itself reaches people with alerts of one severity; what is empty is not used."""

    pagerduty_routing_key_file: str = ""
    slack_api_url_file: str = ""
    slack_channel: str = ""
    """The Slack webhook's own channel unless named."""
    email_to: str = ""

    @property
    def is_used(self) -> bool:
        """Whether it reaches anybody."""
        return bool(self.pagerduty_routing_key_file or self.slack_api_url_file or self.email_to)


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server that takes e-mail; needed when an `email_to` is set."""

    smarthost: str = "localhost:25"
    sender: str = "omniwatch@localhost"
    username: str = ""
    password_file: str = ""
    require_tls: bool = True


class Receivers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Alertmanager sends what it is given."""

    page_webhook_url: Url | None = None
    """Unless said, `omniwatch notify` on this device, where `notify.listen_address` has it; but none where no robot takes
    pages and another channel does. Empty, no webhook."""
    ticket_webhook_url: Url | None = None
    watchdog_webhook_url: Url = ""
    """A dead man's switch elsewhere: it raises the alarm when this device's Watchdog no longer calls."""
    page: Channels = Channels()
    ticket: Channels = Channels()
    mail: Mail = Mail()

    def beside(self, notify: Notify) -> Receivers:
        """Return them with every webhook said: what is not is the bridge's, or none where the bridge has nobody to tell.

        Pages that nobody else is told go to the bridge all the same, and so do tickets where nobody is told anything: what
        fails there is seen, by the centre of a fleet for one.
        """
        host, port = host_and_port(notify.listen_address)
        # Where the bridge listens everywhere, it is reached here.
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        bridge = f"http://{joined(host, port)}"
        taken = {severity for robot in notify.robots for severity in robot.severities}
        nobody = not (
            taken
            or self.page.is_used
            or self.ticket.is_used
            or self.page_webhook_url
            or self.ticket_webhook_url
        )
        page = f"{bridge}/page" if "page" in taken or not self.page.is_used else ""
        ticket = f"{bridge}/ticket" if "ticket" in taken or nobody else ""
        return msgspec.structs.replace(
            self,
            page_webhook_url=page if self.page_webhook_url is None else self.page_webhook_url,
            ticket_webhook_url=ticket if self.ticket_webhook_url is None else self.ticket_webhook_url,
        )


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
    """Who is called when a page fires: mobile numbers (DingTalk) or user ids (Feishu, WeCom)."""


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

    def __post_init__(self) -> None:
        """Refuse an address that is none."""
        host_and_port(self.listen_address)


def host_and_port(address: str) -> tuple[str, int]:
    """Split `notify.listen_address`, an IPv6 host in brackets; the host comes without them. Raises ValueError."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not 0 <= number <= 65_535 or (":" in bare and bare == host) or ":" not in address:
        raise ValueError(f'listen_address: expected HOST:PORT, got "{address}"')
    return bare, number
