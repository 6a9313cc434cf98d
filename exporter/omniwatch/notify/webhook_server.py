"""Run the bridge: the webhook that Alertmanager calls, and a thread for each robot."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from http import HTTPStatus
from pathlib import Path

import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from omniwatch.bundle import bridge, catalogue
from omniwatch.notify import messages
from omniwatch.notify.metrics import Metrics
from omniwatch.notify.open_groups import MAX_OPEN, OpenGroups
from omniwatch.notify.queue_file import QueueFile
from omniwatch.notify.sender import Sender
from omniwatch.settings.receivers import Notify, Robot
from omniwatch.web import READ, Route, WsgiApp, routed
from omniwatch.web.body import with_body
from omniwatch.web.origin import guarded
from omniwatch.web.response import Response
from omniwatch.web.server import serve

log = logging.getLogger(__name__)
MAX_BODY = 4 * 2**20
"""Longest webhook, bytes."""
MAX_CONNECTIONS = 16
"""Connections at once. Their longest bodies together fit into the memory that the unit allows."""


class WebhookServer:
    """The web side: POST /page and /ticket from Alertmanager, /metrics, /-/healthy, and /deliveries.json: what each robot took.

    Raises UserError, OSError.

    `web_config` is a file as in web/config.py. `hosts` are the names by which /page and /ticket may be asked for, beside
    addresses, localhost and the host's own name. It serves until `stop`.
    """

    def __init__(
        self,
        settings: Notify,
        zone: tzinfo | None = None,
        state_dir: Path | None = None,
        *,
        web_config: Path | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.metrics = Metrics()
        self._zone = zone
        self._worst_first = catalogue.worst_first(catalogue.load())
        self._open = OpenGroups()
        kept = QueueFile(state_dir, settings.try_for_s)
        places = _places(settings.robots)
        self.senders = [
            Sender(bridge.robot_name(robot, number), robot, settings, self.metrics, kept, place)
            for number, (robot, place) in enumerate(zip(settings.robots, places, strict=True))
        ]
        self._server = serve(
            [settings.listen_address],
            self._make_app(list(hosts)),
            web_config,
            named="notify.listen_address",
            registry=self.metrics.registry,
            max_connections=MAX_CONNECTIONS,
        )
        self.address = self._server.addresses[0]
        for message in kept.drop_unknown(places):
            fields = {"title": message.title, "error": "the settings no longer name its robot"}
            log.error("message given up", extra={"fields": fields})
        for sender in self.senders:
            sender.start()

    def stop(self, within_s: float = 5.0) -> None:
        """Take no more, deliver what can be delivered, and end."""
        self._server.close()
        deadline = time.monotonic() + within_s
        for sender in self.senders:
            sender.stop(max(0.0, deadline - time.monotonic()))

    def answer(self, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        """Return status, content type and body of the answer to GET (no body) or POST."""
        text = "text/plain; charset=utf-8"
        if body is None:
            if path == "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self.metrics.registry)
            if path == bridge.PATH:
                report = bridge.Report([sender.report() for sender in self.senders])
                return 200, "application/json", msgspec.json.encode(report) + b"\n"
            if path == "/-/healthy":
                if all(sender.alive for sender in self.senders):
                    return 200, text, b"OK\n"
                return 503, text, b"the messages of a robot are no longer carried\n"
            return 405, text, b"POST /page, POST /ticket\n"
        severity = path.lstrip("/")
        takers = [sender for sender in self.senders if severity in sender.robot.severities]
        if not takers:
            # A 200 would make Alertmanager count the alert as delivered although no robot received it.
            self.metrics.groups.labels("404").inc()
            return 404, text, f"no robot takes a {severity}\n".encode()
        try:
            group = messages.decode(body)
            first = group.group_key not in self._open
            for sender in takers:
                message = messages.compose(
                    group,
                    severity,
                    sender.robot.language,
                    self._zone,
                    worst_first=self._worst_first,
                    first=first,
                    escape=sender.escape,
                )
                sender.put(message)
            if forgotten := self._open.take(group.group_key, is_firing=group.status == "firing"):
                self.metrics.forgotten.inc(forgotten)
                log.warning(
                    "too many groups fire, the oldest is forgotten", extra={"fields": {"most": MAX_OPEN}}
                )
        except ValueError as error:
            self.metrics.groups.labels("400").inc()
            return 400, text, f"{error}\n".encode()
        self.metrics.groups.labels("200").inc()
        return 200, text, b"OK\n"

    def _make_app(self, hosts: Iterable[str]) -> WsgiApp:
        def page(path: str) -> Route:
            return Route(READ, lambda environ: self._respond(path, None))

        def webhook(path: str) -> Route:
            take = with_body(lambda body: self._respond(path, body), MAX_BODY)
            return Route(("POST",), guarded(take, lambda: hosts))

        return routed(
            {path: webhook(path) for path in ("/page", "/ticket")}
            | {path: page(path) for path in ("/metrics", "/-/healthy", bridge.PATH)}
        )

    def _respond(self, path: str, body: bytes | None) -> Response:
        status, kind, text = self.answer(path, body)
        return Response(f"{status} {HTTPStatus(status).phrase}", text, kind)


def _places(robots: Sequence[Robot]) -> list[str]:
    """Return what each robot is known by from one run to the next, wherever it stands in the settings' list."""
    names = [f"{robot.kind} {robot.url_file}" for robot in robots]
    return [f"{name} {names[:number].count(name)}" for number, name in enumerate(names)]
