"""Run the bridge: the webhook that Alertmanager calls, and a thread for each robot."""

from __future__ import annotations

import http.server
import logging
import socket
import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from omniwatch.bundle import catalogue
from omniwatch.notify import messages
from omniwatch.notify.metrics import Metrics
from omniwatch.notify.queue_file import QueueFile
from omniwatch.notify.sender import NotifyError, Sender
from omniwatch.settings.receivers import Notify, Robot, host_and_port

log = logging.getLogger(__name__)
MAX_BODY = 4 * 2**20


class WebhookServer:
    """The web side: POST /page and /ticket from Alertmanager, /metrics and /-/healthy. Raises UserError, OSError."""

    def __init__(self, settings: Notify, zone: tzinfo | None = None, state_dir: Path | None = None) -> None:
        self.metrics = Metrics()
        self._zone = zone
        self._worst_first = catalogue.worst_first(catalogue.load())
        self._open: set[str] = set()
        """The groups whose first message was taken and that are not over."""
        kept = QueueFile(state_dir, settings.try_for_s)
        places = _places(settings.robots)
        self.senders = [
            Sender(f"{robot.kind}-{number}", robot, settings, self.metrics, kept, place)
            for number, (robot, place) in enumerate(zip(settings.robots, places, strict=True))
        ]
        handler = type("Handler", (_Handler,), {"answer": staticmethod(self.answer)})
        host, port = host_and_port(settings.listen_address)
        server = _Server6 if ":" in host else http.server.ThreadingHTTPServer
        try:
            self._server = server((host, port), handler)
        except UnicodeError as error:
            raise NotifyError(f"{settings.listen_address}: no name of a host") from error
        self.address = f"{settings.listen_address.rpartition(':')[0]}:{self._server.server_address[1]}"
        for message in kept.drop_unknown(places):
            fields = {"title": message.title, "error": "the settings no longer name its robot"}
            log.error("message given up", extra={"fields": fields})
        for sender in self.senders:
            sender.start()

    def serve(self) -> None:
        """Serve until `stop`."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self, within_s: float = 5.0) -> None:
        """Take no more, deliver what can be delivered, and end. Not to be called from the thread that serves."""
        self._server.shutdown()
        self._server.server_close()
        deadline = time.monotonic() + within_s
        for sender in self.senders:
            sender.stop(max(0.0, deadline - time.monotonic()))

    def answer(self, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        """Return status, content type and body of the answer to GET (no body) or POST."""
        text = "text/plain; charset=utf-8"
        if body is None:
            if path == "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self.metrics.registry)
            if path == "/-/healthy":
                if all(sender.alive for sender in self.senders):
                    return 200, text, b"OK\n"
                return 503, text, b"the messages of a robot are no longer carried\n"
            return (405 if path in ("/page", "/ticket") else 404), text, b"POST /page, POST /ticket\n"
        severity = path.lstrip("/")
        if severity not in ("page", "ticket"):
            return 404, text, b"POST /page, POST /ticket\n"
        takers = [sender for sender in self.senders if severity in sender.robot.severities]
        if not takers:
            # A 200 would make Alertmanager count the alert as delivered although no robot received it.
            self.metrics.groups.labels("404").inc()
            return 404, text, f"no robot takes a {severity}\n".encode()
        try:
            group = messages.decode(body)
            first = group.group_key not in self._open
            for sender in takers:
                language, ranked = sender.robot.language, self._worst_first
                sender.put(
                    messages.compose(group, severity, language, self._zone, worst_first=ranked, first=first)
                )
            if group.status == "firing":
                self._open.add(group.group_key)
            else:
                self._open.discard(group.group_key)
        except (ValueError, KeyError) as error:
            self.metrics.groups.labels("400").inc()
            return 400, text, f"{error}\n".encode()
        self.metrics.groups.labels("200").inc()
        return 200, text, b"OK\n"


class _Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10
    answer: Callable[[str, bytes | None], tuple[int, str, bytes]]

    def do_GET(self) -> None:
        self._reply(*self.answer(self.path.partition("?")[0], None))

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MAX_BODY:
            self.close_connection = True
            self._reply(413 if size.isdigit() else 411, "text/plain", b"")
            return
        self._reply(*self.answer(self.path.partition("?")[0], self.rfile.read(int(size))))

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing: what matters is logged where it happens."""


def _places(robots: Sequence[Robot]) -> list[str]:
    """Return what each robot is known by from one run to the next, wherever it stands in the settings' list."""
    names = [f"{robot.kind} {robot.url_file}" for robot in robots]
    return [f"{name} {names[:number].count(name)}" for number, name in enumerate(names)]
