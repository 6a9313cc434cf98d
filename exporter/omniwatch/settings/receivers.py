"""The settings of delivery: Alertmanager's receivers, and the chat robots of `omniwatch notify`.

A secret is never in the settings nor in a rendered file: a `_file` names a file that holds it, alone, on one line. An installation puts
two of them into the device's alertmanager.yml where `receivers.secrets` says so.
"""

from __future__ import annotations

import zoneinfo
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from omniwatch.settings.kinds import Address, Positive, Seconds, Url
from omniwatch.system import ports
from omniwatch.system.errors import UserError
from omniwatch.system.hostport import join_host_port

Severity = Literal["page", "ticket"]


class Channels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Alertmanager itself reaches people with alerts of one severity; what is empty is not used."""

    pagerduty_routing_key_file: str = ""
    """File that holds PagerDuty's integration key (Events API v2)."""
    slack_api_url_file: str = ""
    """File that holds the address of a Slack webhook."""
    slack_channel: str = ""
    """Slack channel. Empty: the webhook's own."""
    email_to: str = ""
    """E-mail address, or several with commas between them."""

    @property
    def is_used(self) -> bool:
        """Whether it reaches anybody."""
        return bool(self.pagerduty_routing_key_file or self.slack_api_url_file or self.email_to)


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server that takes e-mail; needed when an `email_to` is set."""

    smarthost: Address = "localhost:25"
    """HOST:PORT of the mail server."""
    sender: Annotated[str, Meta(min_length=1)] = "omniwatch@localhost"
    """Sender address."""
    username: str = ""
    """User name at the mail server. Empty: no login."""
    password_file: str = ""
    """File that holds the password."""
    require_tls: bool = True
    """Whether mail is sent only over TLS (STARTTLS)."""


class Receivers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Alertmanager sends what it is given."""

    page_webhook_url: Url | None = None
    """Webhook for pages. Unset: `omniwatch notify` on this device, or none where no robot takes pages and
    another channel does. Empty: none."""
    ticket_webhook_url: Url | None = None
    """Webhook for tickets. Unset and empty: as for pages."""
    watchdog_webhook_url: Url = ""
    """A dead man's switch elsewhere: it raises the alarm when this device's Watchdog no longer calls. Empty:
    none."""
    group_interval_s: Seconds = 300
    """Time within which a page that joins a group, and the end of a group, are sent. A group of its own leaves at once."""
    secrets: Literal["files", "inline"] = "files"
    """Where Alertmanager finds PagerDuty's key and the mail server's password. `files`: in their files, which takes 0.25 or newer.
    `inline`: `omniwatch install --with-prometheus` writes them into alertmanager.yml, readable by Alertmanager's account alone."""
    page: Channels = Channels()
    """Alertmanager's own channels for pages."""
    ticket: Channels = Channels()
    """Alertmanager's own channels for tickets."""
    mail: Mail = Mail()
    """The mail server, needed when an `email_to` is set."""

    def beside(self, notify: Notify) -> Receivers:
        """Return them with every webhook set: one that is not becomes the bridge's, or none where no robot takes that severity.

        Pages that no other receiver takes go to the bridge all the same, and so do tickets where no receiver takes anything.
        Their failures are then counted, and the centre of a fleet sees them.
        """
        bridge = notify.url
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
    """Chat system of the robot."""
    url_file: Annotated[str, Meta(min_length=1)]
    """File that holds the robot's address, whose token is a secret."""
    secret_file: str = ""
    """File that holds the secret with which messages are signed (DingTalk, Feishu). Empty: unsigned."""
    language: Literal["zh", "en"] = "zh"
    """Language of the messages."""
    severities: list[Severity] = msgspec.field(default_factory=lambda: ["page", "ticket"])
    """Severities this robot is sent."""
    mention: list[str] = []
    """People mentioned when a page fires: mobile numbers (DingTalk) or user ids (the others)."""


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`omniwatch notify`: the bridge from Alertmanager's webhook to chat robots."""

    listen_address: Address = f"127.0.0.1:{ports.NOTIFY}"
    """HOST:PORT at which the bridge takes Alertmanager's webhooks."""
    timezone: str = ""
    """IANA time zone of times in messages, as Asia/Shanghai. Empty: the device's own."""
    per_minute: Annotated[int, Meta(ge=1, le=20)] = 20
    """Messages a minute to one robot: past 20 DingTalk mutes it for ten minutes."""
    try_for_s: Positive = 600
    """Time for which delivery of a message is retried. Then it is dropped."""
    timeout_s: Positive = 10
    """Time for one attempt at delivery, from the robot's name to the end of its answer."""
    robots: list[Robot] = []
    """Robots of chat groups."""

    def __post_init__(self) -> None:
        """Refuse an address that is none."""
        host_and_port(self.listen_address)

    @property
    def url(self) -> str:
        """Where the bridge is reached: where it listens everywhere, it is reached here."""
        host, port = host_and_port(self.listen_address)
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{join_host_port(host, port)}"

    @property
    def zone(self) -> zoneinfo.ZoneInfo | None:
        """The time zone of times in messages; None: the device's own. Raises UserError where this machine lacks it."""
        try:
            return zoneinfo.ZoneInfo(self.timezone) if self.timezone else None
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UserError(
                f'notify.timezone: no time zone "{self.timezone}" on this device; the package tzdata brings them'
            ) from error


def host_and_port(address: str) -> tuple[str, int]:
    """Split `notify.listen_address`, an IPv6 host in brackets; the host comes without them. Raises ValueError."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not 0 <= number <= 65_535 or (":" in bare and bare == host) or ":" not in address:
        raise ValueError(f'listen_address: expected HOST:PORT, got "{address}"')
    return bare, number
