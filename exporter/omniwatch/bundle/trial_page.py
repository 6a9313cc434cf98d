"""Send a test alert through a running Alertmanager: which receivers and robots took it, and after how long. Clock passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, Protocol

from omniwatch.bundle.bridge import BridgeError, Report, robot_name
from omniwatch.settings import Settings
from omniwatch.settings.receivers import Channels, Severity

NAME = "OmniwatchTest"
POLL_S = 0.2
BEAT_S = 60.0
"""Seconds between two heartbeats (deploy/alertmanager)."""
BEAT_GRACE_S = 5.0
HIDDEN = "what was sent cannot be told from the heartbeat, whose attempts fail or come at no fixed time"


class Api(Protocol):
    """What a test needs of an Alertmanager."""

    def post(self, alerts: list[dict[str, Any]]) -> None:
        """Send alerts."""

    def sent(self) -> dict[str, tuple[float, float]]:
        """Return how many were sent and how many failed, by integration."""

    def beats(self) -> bool:
        """Return whether a heartbeat goes out by a webhook there."""


class Bridge(Protocol):
    """Asks the bridge to chat robots. Raises BridgeError."""

    def __call__(self) -> Report:
        """Return what became of its messages."""


class Taken(NamedTuple):
    """An integration or a robot: whether it took the alert, after how long, how many attempts failed, and the last one's words. One that
    refused it did so after `refused_s`, and is asked no more.
    """

    who: str
    after_s: float | None
    failed: int = 0
    error: str = ""
    refused_s: float | None = None


def alert(settings: Settings, severity: Severity, now: float, ends: float) -> dict[str, Any]:
    """Return the test alert. Its `fault` is no other page's, so it joins no incident."""
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
            "summary_zh": "这是一次告警通路测试，没有故障。",
        },
        "startsAt": _written(now),
        "endsAt": _written(ends),
    }


def expected(settings: Settings, severity: Severity) -> list[str]:
    """Return the integrations to which this device's settings send a severity; none where the fleet's Alertmanager has them.

    The bridge's webhook is left out: the robots behind it answer themselves.
    """
    if settings.fleet.alertmanager_urls:
        return []
    receivers = settings.receivers.beside(settings.notify)
    channels: Channels = getattr(receivers, severity)
    used = {
        "webhook": getattr(receivers, f"{severity}_webhook_url") if not robots(settings, severity) else "",
        "pagerduty": channels.pagerduty_routing_key_file,
        "slack": channels.slack_api_url_file,
        "email": channels.email_to,
    }
    return [name for name, set_to in used.items() if set_to]


def robots(settings: Settings, severity: Severity) -> list[str]:
    """Return the robots that the bridge of this device gives a severity, by the names that it has for them."""
    webhook = getattr(settings.receivers.beside(settings.notify), f"{severity}_webhook_url")
    if settings.fleet.alertmanager_urls or webhook != f"{settings.notify.url}/{severity}":
        return []
    found = enumerate(settings.notify.robots)
    return [robot_name(robot, number) for number, robot in found if severity in robot.severities]


def is_hidden_by_heartbeat(settings: Settings, severity: Severity) -> bool:
    """Whether heartbeat and test are both webhooks: Alertmanager counts them together.

    For a fleet's Alertmanager this is not known here.
    """
    if settings.fleet.alertmanager_urls:
        return True
    return bool(settings.receivers.watchdog_webhook_url) and "webhook" in expected(settings, severity)


def heartbeat(api: Api, clock: Callable[[], float], pause: Callable[[float], None]) -> float | None:
    """Wait until a webhook is sent, and return when. None where none is sent within BEAT_S, or an attempt fails: the next one may
    then come at any time. Raises what `api` raises.
    """
    began, (before, failed) = clock(), _webhooks(api)
    while clock() - began < BEAT_S + BEAT_GRACE_S:
        pause(POLL_S)
        sent, failures = _webhooks(api)
        if sent > before:
            return clock() if failures == failed else None
    return None


def _webhooks(api: Api) -> tuple[float, float]:
    return api.sent().get("webhook", (0.0, 0.0))


def run(
    api: Api,
    settings: Settings,
    severity: Severity,
    within_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    *,
    beat_t: float | None = None,
    bridge: Bridge | None = None,
) -> Iterator[Taken]:
    """Send the test alert and yield each integration as it takes it, and each robot as it answers; then those that did not. Ends the
    alert.

    Webhooks that may be heartbeats do not count: one a minute since `beat_t`, and where that is not known, as many as there can
    have been. Another alert that is sent meanwhile to an integration looks like the test; a robot's answer is to the test
    itself. Raises what `api` raises.
    """
    before = api.sent()
    awaited = set(expected(settings, severity))
    hidden = is_hidden_by_heartbeat(settings, severity)
    began = clock()
    sent_alert = alert(settings, severity, began, began + within_s + 60)
    behind = _Behind(robots(settings, severity) if bridge else [], sent_alert["labels"]["test"])
    everybody = bool(awaited or behind.awaited)
    notified: set[str] = set()
    api.post([sent_alert])
    try:
        while clock() - began < within_s and (not everybody or awaited - notified or behind.awaited):
            pause(POLL_S)
            for name, (sent, failed) in api.sent().items():
                earlier, failures = before.get(name, (0.0, 0.0))
                if sent <= earlier or name in notified or (everybody and name not in awaited):
                    continue
                if name == "webhook" and hidden and sent <= earlier + _beats(api, began, clock(), beat_t):
                    continue
                notified.add(name)
                yield Taken(name, clock() - began, int(failed - failures))
            if bridge and behind.awaited:
                yield from behind.look(bridge, began, clock)
        now = api.sent()
        for name in sorted(awaited - notified):
            failures = now.get(name, (0.0, 0.0))[1] - before.get(name, (0.0, 0.0))[1]
            unknown = (
                name == "webhook"
                and hidden
                and beat_t is None
                and now.get(name, (0.0, 0.0)) > before.get(name, (0.0, 0.0))
            )
            yield Taken(name, None, int(failures), HIDDEN if unknown else "")
        yield from behind.left()
    finally:
        api.post([alert(settings, severity, began, clock())])


def _beats(api: Api, began: float, now: float, beat_t: float | None) -> int:
    """Return how many of the webhooks since the test began may be heartbeats."""
    if beat_t is not None:
        return int((now - beat_t + BEAT_GRACE_S) // BEAT_S)
    return 1 + int((now - began) // BEAT_S) if api.beats() else 0


class _Behind:
    """The robots behind the bridge that have not answered the test yet, and their last words."""

    def __init__(self, awaited: list[str], test: str) -> None:
        self.awaited = awaited
        self._key = f'test="{test}"'
        self._failed: dict[str, list[str]] = {}
        self._wrong = ""

    def look(self, bridge: Bridge, began: float, clock: Callable[[], float]) -> Iterator[Taken]:
        """Yield those that have taken the test, or refused it, since they were asked last."""
        try:
            reports = {one.robot: one for one in bridge().robots}
            self._wrong = ""
        except BridgeError as error:
            self._wrong = str(error)
            return
        for name in list(self.awaited):
            if name not in reports:
                self._failed[name] = [
                    "the running bridge does not know this robot: systemctl restart omniwatch-notify"
                ]
                continue
            answers = [one for one in reports[name].outcomes if self._key in one.group]
            self._failed[name] = [one.error for one in answers if one.result != "delivered"]
            if answers and answers[-1].result != "later":
                self.awaited.remove(name)
                is_taken = answers[-1].result == "delivered"
                after_s = max(0.0, clock() - answers[-1].age_s - began)
                failed = len(self._failed[name])
                if is_taken:
                    yield Taken(name, after_s, failed)
                else:
                    yield Taken(name, None, failed, answers[-1].error, after_s)

    def left(self) -> Iterator[Taken]:
        """Yield those that have not answered."""
        for name in self.awaited:
            failed = self._failed.get(name, [])
            yield Taken(name, None, len(failed), self._wrong or "".join(failed[-1:]))


def _written(t: float) -> str:
    return (datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=t)).isoformat()
