"""Send a test alert through a running Alertmanager: which receivers took it, and after how long. Clock passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, Protocol

from omniwatch.settings import Settings
from omniwatch.settings.receivers import Channels, Severity

NAME = "OmniwatchTest"
POLL_S = 0.2
BEAT_S = 60.0
"""The heartbeat goes out so often (deploy/alertmanager)."""
BEAT_GRACE_S = 5.0


class Api(Protocol):
    """What a test needs of an Alertmanager."""

    def post(self, alerts: list[dict[str, Any]]) -> None:
        """Send alerts."""

    def sent(self) -> dict[str, tuple[float, float]]:
        """Return how many were sent and how many failed, by integration."""


class Taken(NamedTuple):
    """One integration: whether it took the alert, after how long, and how many attempts failed."""

    integration: str
    after_s: float | None
    failed: int


def alert(settings: Settings, severity: Severity, now: float, ends: float) -> dict[str, Any]:
    """Return the test alert. It is of no kind of fault that a page is of, so it joins no incident."""
    labels = {
        "alertname": NAME,
        "severity": severity,
        "device": settings.site.device,
        "fault": "test",
        # A test's group is its own: a second test is not held back as news of the first.
        "test": f"{now:.3f}",
    }
    if settings.fleet.alertmanager_urls or settings.fleet.remote_write_url:
        labels["site"] = settings.fleet.site
    return {
        "labels": labels,
        "annotations": {
            "summary": "A test of how a page reaches you.",
            "description": f"Somebody tried `omniwatch page --test` on {settings.site.device}; nothing is wrong.",
            "summary_zh": "这是一次告警通路测试,没有故障。",
        },
        "startsAt": _written(now),
        "endsAt": _written(ends),
    }


def expected(settings: Settings, severity: Severity) -> list[str]:
    """Return the integrations that this device's settings give a severity; none where the fleet's Alertmanager has them."""
    if settings.fleet.alertmanager_urls:
        return []
    receivers = settings.receivers.beside(settings.notify)
    channels: Channels = getattr(receivers, severity)
    used = {
        "webhook": getattr(receivers, f"{severity}_webhook_url"),
        "pagerduty": channels.pagerduty_routing_key_file,
        "slack": channels.slack_api_url_file,
        "email": channels.email_to,
    }
    return [name for name, set_to in used.items() if set_to]


def is_hidden_by_heartbeat(settings: Settings, severity: Severity) -> bool:
    """Whether the heartbeat is counted as what the test looks for: both are webhooks, and Alertmanager counts them together."""
    return bool(settings.receivers.watchdog_webhook_url) and "webhook" in expected(settings, severity)


def heartbeat(api: Api, clock: Callable[[], float], pause: Callable[[float], None]) -> float | None:
    """Wait for a webhook to be sent and return when it was; None where none is within a heartbeat. Raises what `api` raises."""
    began, before = clock(), _webhooks(api)
    while clock() - began < BEAT_S + BEAT_GRACE_S:
        pause(POLL_S)
        if _webhooks(api) > before:
            return clock()
    return None


def _webhooks(api: Api) -> float:
    return api.sent().get("webhook", (0.0, 0.0))[0]


def run(
    api: Api,
    settings: Settings,
    severity: Severity,
    within_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    beat_t: float | None = None,
) -> Iterator[Taken]:
    """Send the test alert and yield each integration as it takes it; then those that did not. Ends the alert.

    What a heartbeat may have added since the one at `beat_t` does not count. Another alert that is sent meanwhile looks like
    the test. Raises what `api` raises.
    """
    before = api.sent()
    awaited = set(expected(settings, severity))
    began = clock()
    api.post([alert(settings, severity, began, began + within_s + 60)])
    notified: set[str] = set()
    try:
        while clock() - began < within_s and (not awaited or awaited - notified):
            pause(POLL_S)
            for name, (sent, failed) in api.sent().items():
                earlier, failures = before.get(name, (0.0, 0.0))
                if name == "webhook" and beat_t is not None:
                    earlier += (clock() - beat_t + BEAT_GRACE_S) // BEAT_S
                if sent > earlier and name not in notified:
                    notified.add(name)
                    yield Taken(name, clock() - began, int(failed - failures))
        now = api.sent()
        for name in sorted(awaited - notified):
            failures = now.get(name, (0.0, 0.0))[1] - before.get(name, (0.0, 0.0))[1]
            yield Taken(name, None, int(failures))
    finally:
        api.post([alert(settings, severity, began, clock())])


def _written(t: float) -> str:
    return (datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=t)).isoformat()
