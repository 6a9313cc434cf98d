"""Send a test alert through a running Alertmanager: which receivers took it, and after how long. Clock passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, Protocol

from omniwatch.settings import Settings
from omniwatch.settings.receivers import Channels, Severity

NAME = "OmniwatchTest"
POLL_S = 0.2


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
        "test": f"{now:.0f}",
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


def run(
    api: Api,
    settings: Settings,
    severity: Severity,
    within_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> Iterator[Taken]:
    """Send the test alert and yield each integration as it takes it; then those that did not. Ends the alert.

    Another alert that is sent meanwhile cannot be told from it. Raises what `api` raises.
    """
    before = api.sent()
    awaited = set(expected(settings, severity))
    began = clock()
    api.post([alert(settings, severity, began, began + within_s + 60)])
    told: set[str] = set()
    try:
        while clock() - began < within_s and (not awaited or awaited - told):
            pause(POLL_S)
            for name, (sent, failed) in api.sent().items():
                earlier, failures = before.get(name, (0.0, 0.0))
                if sent > earlier and name not in told:
                    told.add(name)
                    yield Taken(name, clock() - began, int(failed - failures))
        now = api.sent()
        for name in sorted(awaited - told):
            failures = now.get(name, (0.0, 0.0))[1] - before.get(name, (0.0, 0.0))[1]
            yield Taken(name, None, int(failures))
    finally:
        api.post([alert(settings, severity, began, clock())])


def _written(t: float) -> str:
    return (datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=t)).isoformat()
