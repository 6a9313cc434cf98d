"""What a backtest says Alertmanager sends, held against a real one that gets the same alerts at the same times."""

from __future__ import annotations

import http.server
import json
import random
import threading
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from helpers.waiting import wait_until
from omniwatch.desk.backtest import routes
from omniwatch.desk.backtest.notifications import Arrival, Notification, counts, notifications
from omniwatch.desk.backtest.routes import Routing
from omniwatch.desk.child_process import ChildProcess, free_port, program

CONFIG = """
route:
  receiver: default
  group_by: [alertname, device]
  routes:
    - matchers: ['severity="page"']
      receiver: page
      group_by: [device, fault]
      group_wait: 0s
      group_interval: 3700ms
      repeat_interval: 6s
    - matchers: ['severity=~"tick.*"', 'device!="d0"']
      receiver: ticket
      group_wait: 1300ms
      group_interval: 4300ms
      repeat_interval: 1h
      continue: true
    - matchers: ['severity="ticket"']
      receiver: quiet
      group_by: ['...']
      group_wait: 600ms
      group_interval: 3100ms
inhibit_rules:
  - source_matchers: ['alertname="Dead"']
    target_matchers: ['fault="speech"']
    equal: [device]
receivers:
  - {name: default, webhook_configs: [{url: URL}]}
  - {name: page, webhook_configs: [{url: URL, send_resolved: true}]}
  - {name: ticket, webhook_configs: [{url: URL, send_resolved: true}]}
  - {name: quiet, webhook_configs: [{url: URL, send_resolved: false}]}
"""
ALERTS = (
    {"alertname": "Drift", "severity": "page", "fault": "speech"},
    {"alertname": "Late", "severity": "page", "fault": "speech"},
    {"alertname": "Dead", "severity": "page", "fault": "server"},
    {"alertname": "Eroding", "severity": "ticket", "fault": "speech"},
    {"alertname": "Odd"},
)
LENGTH_S = 36
DEVICES = 24
APART_S = 0.6
"""What may be late on a busy machine without another message being sent: schedules in which it would matter are not used."""
LATE_S = 1.5
"""How late a message may come there: timers add up."""


class Message(NamedTuple):
    """One message, whoever says it: the time apart."""

    receiver: str
    status: str
    group: tuple[tuple[str, str], ...]
    firing: tuple[str, ...]
    resolved: tuple[str, ...]


def routing(url: str = "http://127.0.0.1:1") -> Routing:
    return routes.read(CONFIG.replace("URL", url), "{}")


def schedule(luck: random.Random, device: str) -> list[Arrival]:
    """A device's alerts that come, are sent again, end, are said to be over again, and come back."""
    found = []
    for alert in ALERTS:
        labels = tuple(sorted({**alert, "device": device}.items()))
        firing, starts_t, t = False, 0, luck.randint(1, 9)
        while t < LENGTH_S - 9:
            if luck.random() < 0.7:
                firing = not firing
            starts_t = (
                t
                if firing and (not found or found[-1].labels != labels or not found[-1].firing)
                else starts_t
            )
            if firing or (found and found[-1].labels == labels):
                found.append(Arrival(t, labels, firing, starts_t))
            t += luck.randint(1, 8)
    return sorted(found, key=lambda one: one.t)


def said(one: Notification) -> Message:
    names = [
        tuple(sorted(dict(labels)["alertname"] for labels in some)) for some in (one.firing, one.resolved)
    ]
    return Message(one.receiver, one.status, one.group, *names)


def by_group(messages: list[tuple[float, Message]]) -> dict[Any, list[tuple[float, Message]]]:
    found: dict[Any, list[tuple[float, Message]]] = {}
    for t, one in messages:
        found.setdefault((one.receiver, one.group), []).append((t, one))
    return found


def is_firm(arriving: list[Arrival]) -> bool:
    """Whether no message becomes another one, or waits for a later turn, when some that is posted, or the sweeping, is late."""
    told = [
        [(one.t, said(one)) for one in notifications(routing(), moved(arriving, late_s), LENGTH_S, swept_s)]
        for late_s in (0, APART_S)
        for swept_s in (-APART_S, 0, APART_S)
    ]
    return all(same(told[0], other, 2 * APART_S) for other in told)


def same(ours: list[tuple[float, Message]], theirs: list[tuple[float, Message]], late_s: float) -> bool:
    """Whether each group was sent the same messages, none much later."""
    first, second = by_group(ours), by_group(theirs)
    return first.keys() == second.keys() and all(
        [one[1] for one in some] == [one[1] for one in second[key]]
        and all(abs(a[0] - b[0]) < late_s for a, b in zip(some, second[key], strict=True))
        for key, some in first.items()
    )


def moved(arriving: list[Arrival], by_s: float) -> list[Arrival]:
    """Let every other moment's alerts arrive so much later."""
    return [one._replace(t=one.t + by_s * (int(one.t) % 2)) for one in arriving]


class Webhook:
    """Keeps what Alertmanager sends, with when it came."""

    def __init__(self) -> None:
        taken = self.taken = list[tuple[float, Message]]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names: dict[str, list[str]] = {"firing": [], "resolved": []}
                for alert in body["alerts"]:
                    names[alert["status"]].append(alert["labels"]["alertname"])
                group = tuple(sorted(body["groupLabels"].items()))
                sorted_names = (tuple(sorted(some)) for some in names.values())
                taken.append((time.time(), Message(body["receiver"], body["status"], group, *sorted_names)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def posted(one: Arrival, start_t: float) -> dict[str, Any]:
    def utc(t: float) -> str:
        return datetime.fromtimestamp(t, timezone.utc).isoformat()

    ends_t = time.time() + 3600 if one.firing else time.time()
    return {"labels": dict(one.labels), "startsAt": utc(start_t + one.starts_t), "endsAt": utc(ends_t)}


def really_sent(directory: Path, arriving: list[Arrival]) -> list[tuple[float, Message]]:
    """What a real Alertmanager sends of these arrivals, and when."""
    hook = Webhook()
    config, address = directory / "alertmanager.yml", f"127.0.0.1:{free_port()}"
    config.write_text(CONFIG.replace("URL", hook.url))
    flags = {
        "config.file": config,
        "storage.path": directory / "data",
        "web.listen-address": address,
        "cluster.listen-address": "",
    }
    command = [program("prometheus-alertmanager", "alertmanager"), *(f"--{k}={v}" for k, v in flags.items())]
    service = ChildProcess("alertmanager", command, directory, f"http://{address}")
    try:
        service.await_ready("/-/ready")
        start_t = time.time()
        for t in sorted({one.t for one in arriving}):
            wait_until(lambda due_t=start_t + t: time.time() >= due_t, LENGTH_S)
            batch = [posted(one, start_t) for one in arriving if one.t == t]
            request = urllib.request.Request(
                f"http://{address}/api/v2/alerts",
                json.dumps(batch).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=10).close()
        wait_until(lambda: time.time() >= start_t + LENGTH_S, LENGTH_S)
    finally:
        service.stop()
        hook.close()
    return [(t - start_t, message) for t, message in hook.taken if t - start_t < LENGTH_S - 1]


def test_a_real_alertmanager_sends_the_same_messages_at_the_same_times(tmp_path: Path) -> None:
    """Groups that wait, join, end, are swept and come back; repeats; a source that silences; receivers that hear no ends."""
    luck = random.Random(8)
    arriving: list[Arrival] = []
    for number in range(DEVICES):
        own = schedule(luck, f"d{number}")
        while not is_firm(own):
            own = schedule(luck, f"d{number}")
        arriving += own
    forgotten = tuple(sorted({**ALERTS[0], "device": "forgotten"}.items()))
    arriving += [
        Arrival(20, forgotten, True, 20),
        Arrival(21, forgotten, False, 20),
        Arrival(33, forgotten, True, 33),
    ]
    assert is_firm(arriving[-3:])
    arriving.sort(key=lambda one: one.t)
    expected = [one for one in notifications(routing(), arriving, LENGTH_S) if one.t < LENGTH_S - 1]
    modelled = [(one.t, said(one)) for one in expected]
    # A machine that stands still for a second and a half has shown nothing: it is asked once more.
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        heard = really_sent(tmp_path / attempt, arriving)
        if same(heard, modelled, LATE_S):
            break
    assert same(heard, modelled, LATE_S), (by_group(heard), by_group(modelled))
    assert [one.t for one in expected if ("device", "forgotten") in one.group] == [20, 23.7, 33], (
        "swept at 30"
    )
    assert {one.receiver for one in expected} == {"default", "page", "ticket", "quiet"}
    assert counts(expected)["page"].incidents > DEVICES
    assert sum(one.repeats for one in expected) > DEVICES / 2
