"""Decide whether these settings notify a person of a page: receivers, routes and heartbeat."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from omniwatch.settings import Settings
from omniwatch.settings.receivers import Receivers, Severity
from omniwatch.system.errors import UserError

SEVERITIES: tuple[Severity, ...] = ("page", "ticket")


def is_set(settings: Settings) -> bool:
    """Whether these settings name any receiver, robot or fleet. Until they do, a missing receiver is not reported as a fault."""
    fleet = settings.fleet
    return bool(
        settings.receivers != Receivers()
        or settings.notify.robots
        or fleet.alertmanager_urls
        or fleet.remote_write_url
    )


def faults(settings: Settings) -> Iterator[str]:
    """Yield what keeps a page from a person, a line each that says what to set."""
    if settings.fleet.alertmanager_urls:
        yield from _of_a_fleet(settings)
        return
    if settings.fleet.remote_write_url:
        yield (
            "fleet.remote_write_url: set fleet.alertmanager_urls to the centre's Alertmanager, too; the centre does not raise "
            "this device's pages from what the uplink sends"
        )
    yield from _unreached_robots(settings)
    if settings.notify.robots:
        try:
            _ = settings.notify.zone
        except UserError as error:
            yield str(error)
    if not notified(settings, "page"):
        yield "receivers: nobody is told of a page; set receivers.page, receivers.page_webhook_url or notify.robots"
    elif not _leaves(settings):
        yield (
            f"receivers.page_webhook_url: {settings.receivers.page_webhook_url} is on this device, and no other receiver takes "
            "pages: nobody elsewhere is told"
        )
    if not settings.receivers.watchdog_webhook_url:
        yield (
            "receivers.watchdog_webhook_url: set it to a dead man's switch elsewhere; nobody notices when this device's alerting "
            "stops"
        )


def notified(settings: Settings, severity: Severity) -> list[str]:
    """Return, in a few words each, the receivers that an Alertmanager with these settings notifies at this severity."""
    receivers = settings.receivers.beside(settings.notify)
    channels = getattr(receivers, severity)
    found = []
    if channels.pagerduty_routing_key_file:
        found.append("PagerDuty")
    if channels.slack_api_url_file:
        found.append(f"Slack {channels.slack_channel}".rstrip())
    if channels.email_to:
        found.append(channels.email_to)
    webhook = getattr(receivers, f"{severity}_webhook_url")
    if webhook and webhook == _bridge(settings, severity):
        found += [f"{robot.kind} robot" for robot in settings.notify.robots if severity in robot.severities]
    elif webhook:
        found.append(webhook)
    return found


def _of_a_fleet(settings: Settings) -> Iterator[str]:
    if settings.notify.robots or settings.receivers != Receivers():
        yield (
            "fleet.alertmanager_urls: this device's alerts go to the fleet's Alertmanager; receivers and notify.robots reach nobody "
            "here: move them to the centre's omniwatch.yaml"
        )
    if all(_is_loopback(url) for url in settings.fleet.alertmanager_urls):
        yield "fleet.alertmanager_urls: every address is this device's own; name the centre's"
    if not settings.fleet.remote_write_url:
        yield (
            "fleet.remote_write_url: set it, too; without an uplink the centre does not notice when this device falls silent"
        )


def _unreached_robots(settings: Settings) -> Iterator[str]:
    """Yield robots for alerts that are sent past the bridge."""
    for number, robot in enumerate(settings.notify.robots):
        for severity in robot.severities:
            name = f"{severity}_webhook_url"
            stated = getattr(settings.receivers, name)
            bridge = _bridge(settings, severity)
            if stated is not None and stated != bridge:
                goes = f"is {stated}" if stated else "is empty"
                yield (
                    f"notify.robots[{number}]: takes {severity}s and gets none: receivers.{name} {goes}; leave it out, "
                    f"or take {severity} out of the robot's severities"
                )


def _bridge(settings: Settings, severity: Severity) -> str:
    """Return where the bridge to chat robots takes alerts of a severity."""
    return f"{settings.notify.url}/{severity}"


def _leaves(settings: Settings) -> bool:
    """Whether a receiver of pages is elsewhere than on this device."""
    return any(not who.startswith("http") or not _is_loopback(who) for who in notified(settings, "page"))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
