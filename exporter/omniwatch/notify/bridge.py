"""The bridge at work: a thread for each robot, and the web side that Alertmanager calls."""

from __future__ import annotations

import http.server
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from omniwatch.notify import messages, robots
from omniwatch.notify.outbox import Outbox
from omniwatch.notify.robots import Verdict
from omniwatch.receivers import Notify, Robot

log = logging.getLogger(__name__)
MAX_BODY = 4 * 2**20
MAX_ANSWER = 64 * 2**10
IDLE_S = 60.0


class NotifyError(ValueError):
    """The bridge cannot work with these settings; the message is one line."""


class Metrics:
    """What the bridge says of itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.groups = Counter(
            "omniwatch_notify_groups", "Webhook calls of Alertmanager, by how they were answered.",
            ["code"], registry=self.registry,
        )  # fmt: skip
        self.attempts = Counter(
            "omniwatch_notify_attempts", "Messages sent to a robot, by what became of them.",
            ["robot", "result"], registry=self.registry,
        )  # fmt: skip
        self.merged = Counter(
            "omniwatch_notify_merged", "Messages that went in one with others, there being too many.",
            ["robot"], registry=self.registry,
        )  # fmt: skip
        self.given_up = Counter(
            "omniwatch_notify_given_up", "Messages that could not be delivered in time or were refused.",
            ["robot"], registry=self.registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "omniwatch_notify_waiting", "Messages that have not left yet.",
            ["robot"], registry=self.registry,
        )  # fmt: skip


class Courier:
    """Carries messages to one robot, in a thread of its own. `clock` gives seconds since the epoch."""

    def __init__(
        self,
        name: str,
        robot: Robot,
        settings: Notify,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.robot = robot
        self._name = name
        self._timeout_s = settings.timeout_s
        self._metrics = metrics
        self._clock = clock
        self._outbox = Outbox(settings.per_minute, settings.try_for_s, robot.language)
        self._news = threading.Condition()
        self._stopping = False
        self._secrets()
        for verdict in Verdict:
            metrics.attempts.labels(name, verdict.value)
        metrics.merged.labels(name)
        metrics.given_up.labels(name)
        metrics.waiting.labels(name).set(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, message: messages.Message) -> None:
        """Take a message to deliver as soon as may be."""
        with self._news:
            self._outbox.put(message, self._clock())
            self._metrics.waiting.labels(self._name).set(len(self._outbox))
            self._news.notify()

    def stop(self, within_s: float) -> None:
        """Deliver what can be delivered at once, and end."""
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._news:
                self._give_up(self._outbox.expire(self._clock()), "not delivered in time")
                wait = self._outbox.wait_s(self._clock())
                if self._stopping and wait != 0:
                    return
                if wait != 0:
                    self._news.wait(IDLE_S if wait is None else min(wait, IDLE_S))
                    continue
                message, parts = self._outbox.take(self._clock())
            verdict, why = self._send(message)
            with self._news:
                self._metrics.attempts.labels(self._name, verdict.value).inc()
                if verdict is Verdict.LATER:
                    log.warning("not delivered, will be tried again", extra=self._about(message, why))
                    self._outbox.failed(self._clock())
                    continue
                self._outbox.settled(parts)
                self._metrics.waiting.labels(self._name).set(len(self._outbox))
                if verdict is Verdict.REFUSED:
                    self._give_up(parts, why)
                elif len(parts) > 1:
                    self._metrics.merged.labels(self._name).inc(len(parts))

    def _send(self, message: messages.Message) -> tuple[Verdict, str]:
        try:
            url, secret = self._secrets()
            request = robots.request(self.robot, url, secret, message, self._clock())
            headers = {"Content-Type": "application/json; charset=utf-8"}
            call = urllib.request.Request(request.url, request.body, headers)
            with urllib.request.urlopen(call, timeout=self._timeout_s) as answer:
                return robots.verdict(self.robot.kind, answer.status, answer.read(MAX_ANSWER))
        except urllib.error.HTTPError as error:
            return robots.verdict(self.robot.kind, error.code, b"")
        except (OSError, NotifyError) as error:
            return Verdict.LATER, type(
                error
            ).__name__  # its text may hold the address, whose token is a secret

    def _secrets(self) -> tuple[str, str]:
        """Read address and secret anew, so that they can be changed under the running bridge. Raises NotifyError."""
        url = _secret(self.robot.url_file)
        if not url.startswith(("https://", "http://")):
            raise NotifyError(f"{self.robot.url_file}: holds no address of a robot")
        return url, _secret(self.robot.secret_file) if self.robot.secret_file else ""

    def _give_up(self, given_up: list[messages.Message], why: str) -> None:
        for message in given_up:
            self._metrics.given_up.labels(self._name).inc()
            log.error("given up", extra=self._about(message, why))
        self._metrics.waiting.labels(self._name).set(len(self._outbox))

    def _about(self, message: messages.Message, why: str) -> dict[str, dict[str, str]]:
        return {"fields": {"robot": self._name, "title": message.title, "why": why}}


class Bridge:
    """The web side: POST /page and /ticket from Alertmanager, /metrics and /-/healthy. Raises NotifyError, OSError."""

    def __init__(self, settings: Notify, zone: tzinfo | None = None) -> None:
        self.metrics = Metrics()
        self._zone = zone
        self.couriers = [
            Courier(f"{robot.kind}-{number}", robot, settings, self.metrics)
            for number, robot in enumerate(settings.robots)
        ]
        host, _, port = settings.listen_address.rpartition(":")
        if not port.isdigit():
            raise NotifyError(f'notify.listen_address: expected HOST:PORT, got "{settings.listen_address}"')
        handler = type("Handler", (_Handler,), {"answer": staticmethod(self.answer)})
        self._server = http.server.ThreadingHTTPServer((host.strip("[]"), int(port)), handler)
        self.address = f"{host}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Serve until `stop`."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self, within_s: float = 5.0) -> None:
        """Take no more, deliver what can be delivered, and end. Not to be called from the thread that serves."""
        self._server.shutdown()
        self._server.server_close()
        deadline = time.monotonic() + within_s
        for courier in self.couriers:
            courier.stop(max(0.0, deadline - time.monotonic()))

    def answer(self, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        """Return status, content type and body of the answer to GET (no body) or POST."""
        text = "text/plain; charset=utf-8"
        if body is None:
            if path == "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self.metrics.registry)
            if path == "/-/healthy":
                return 200, text, b"OK\n"
            return (405 if path in ("/page", "/ticket") else 404), text, b"POST /page, POST /ticket\n"
        severity = path.lstrip("/")
        if severity not in ("page", "ticket"):
            return 404, text, b"POST /page, POST /ticket\n"
        try:
            group = messages.decode(body)
            self._hand_out(group, severity)
        except (ValueError, KeyError) as error:
            self.metrics.groups.labels("400").inc()
            return 400, text, f"{error}\n".encode()
        self.metrics.groups.labels("200").inc()
        return 200, text, b"OK\n"

    def _hand_out(self, group: messages.Group, severity: str) -> None:
        for courier in self.couriers:
            if severity in courier.robot.severities:
                courier.put(messages.compose(group, severity, courier.robot.language, self._zone))


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


def _secret(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotifyError(f"{name}: {getattr(error, 'strerror', None) or 'is not text'}") from error
