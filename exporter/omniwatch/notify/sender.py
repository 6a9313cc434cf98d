"""Send one robot's messages: a thread that retries what its outbox has ready until the robot takes it."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from omniwatch.bundle.bridge import RobotReport
from omniwatch.notify import messages, robots
from omniwatch.notify.deliveries import Deliveries
from omniwatch.notify.metrics import Metrics
from omniwatch.notify.outbox import Outbox, Waiting
from omniwatch.notify.queue_file import QueueFile
from omniwatch.notify.robots import Verdict
from omniwatch.settings.receivers import Notify, Robot
from omniwatch.system import http, user_file
from omniwatch.system.errors import UserError

log = logging.getLogger(__name__)
MAX_ANSWER = 64 * 2**10
IDLE_S = 60.0
TOO_MANY = "too many messages wait"
STRUCK = "***"
MIN_SECRET = 6
"""Shorter parts of an address are no secret: /v2, hook, send."""


class NotifyError(UserError):
    """The bridge cannot work with these settings or this installation."""


class Sender:
    """Carries messages to one robot, in a thread of its own, and has those that wait kept at `place`.

    What is due is told by `now`, a monotonic time in seconds: a device's clock is set once it has a network. `wall` gives
    seconds since the epoch, for signatures alone.
    """

    def __init__(
        self,
        name: str,
        robot: Robot,
        settings: Notify,
        metrics: Metrics,
        kept: QueueFile,
        place: str,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.robot = robot
        self._chat = robots.of(robot)
        self._name = name
        self._timeout_s = settings.timeout_s
        self._metrics = metrics
        self._kept, self._place = kept, place
        self._now, self._wall = now, wall
        self._deliveries = Deliveries()
        self._outbox = Outbox(
            settings.per_minute, settings.try_for_s, robot.language, self._chat.fits, self._chat.escape
        )
        self._news = threading.Condition()
        self._stopping = False
        self._secrets()
        for verdict in Verdict:
            metrics.attempts.labels(name, verdict.value)
        metrics.merged.labels(name)
        metrics.given_up.labels(name)
        for found in kept.pending(place):
            self._lose(self._outbox.put(found.message, found.since), TOO_MANY)
        metrics.waiting.labels(name).set(len(self._outbox))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    @property
    def escape(self) -> messages.Escape:
        """How a text is written so that the robot shows it as it is."""
        return self._chat.escape

    @property
    def alive(self) -> bool:
        """Whether messages are still carried."""
        return self._thread.is_alive()

    def put(self, message: messages.Message) -> None:
        """Take a message to deliver as soon as may be; it is kept when this returns."""
        with self._news:
            self._lose(self._outbox.put(message, self._now()), TOO_MANY)
            self._changed()
            self._news.notify()

    def report(self) -> RobotReport:
        """Say what the robot has taken, and what it has not."""
        with self._news:
            severities = [str(one) for one in self.robot.severities]
            return self._deliveries.report(self._name, severities, self._outbox.waiting, self._now())

    def stop(self, within_s: float) -> None:
        """Deliver what can be delivered at once, and end."""
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._news:
                self._expire()
                wait = self._outbox.wait_s(self._now())
                if self._stopping and wait != 0:
                    return
                if wait != 0:
                    self._news.wait(IDLE_S if wait is None else min(wait, IDLE_S))
                    continue
                message, parts = self._outbox.take(self._now())
            verdict, why = self._send(message)
            with self._news:
                self._metrics.attempts.labels(self._name, verdict.value).inc()
                self._deliveries.note(parts, verdict.value, why, self._now())
                if verdict is Verdict.LATER:
                    log.warning("message not delivered, will be tried again", extra=self._about(message, why))
                    self._outbox.failed(self._now())
                    continue
                if verdict is Verdict.REFUSED:
                    self._deliveries.lose(one for one in self._outbox.waiting if one.message in parts)
                self._outbox.settled(parts)
                self._changed()
                if verdict is Verdict.REFUSED:
                    self._give_up(parts, why)
                elif len(parts) > 1:
                    self._metrics.merged.labels(self._name).inc(len(parts))

    def _send(self, message: messages.Message) -> tuple[Verdict, str]:
        try:
            url, secret = self._secrets()
            request = self._chat.request(url, secret, message, self._wall())
            headers = {"Content-Type": "application/json; charset=utf-8"}
            with http.ask(
                request.url, timeout_s=self._timeout_s, body=request.body, headers=headers
            ) as answer:
                body = answer.read(MAX_ANSWER, cut=True) if answer.status == 200 else b""
                verdict, why = self._chat.verdict(answer.status, body)
                return verdict, without(why, url, request.url, secret)
        except Exception as error:
            # Whatever it is, the next message must find the thread alive; and its text may hold the address, whose token
            # is a secret.
            return Verdict.LATER, type(error).__name__

    def _secrets(self) -> tuple[str, str]:
        """Read address and secret anew, so that they can be changed under the running bridge. Raises NotifyError."""
        url = _secret(self.robot.url_file)
        if not _is_address(url):
            raise NotifyError(f"{self.robot.url_file}: holds no address of a robot")
        return url, _secret(self.robot.secret_file) if self.robot.secret_file else ""

    def _expire(self) -> None:
        self._lose(self._outbox.expire(self._now()), "not delivered in time")

    def _lose(self, lost: list[Waiting], why: str) -> None:
        if lost:
            self._deliveries.lose(lost)
            self._deliveries.note([one.message for one in lost], "expired", why, self._now())
            self._give_up([one.message for one in lost], why)

    def _give_up(self, given_up: list[messages.Message], why: str) -> None:
        for message in given_up:
            self._metrics.given_up.labels(self._name).inc()
            log.error("message given up", extra=self._about(message, why))
        if given_up:
            self._changed()

    def _changed(self) -> None:
        self._metrics.waiting.labels(self._name).set(len(self._outbox))
        self._kept.keep(self._place, self._outbox.waiting)

    def _about(self, message: messages.Message, why: str) -> dict[str, dict[str, str]]:
        return {"fields": {"robot": self._name, "title": message.title, "error": why}}


def without(text: str, *secrets: str) -> str:
    """Strike out of a robot's words what is in its addresses and secrets: paths, values, the whole."""
    parts: set[str] = set()
    for secret in secrets:
        split = urlsplit(secret)
        parts |= {
            secret,
            split.query,
            split.path,
            *split.path.split("/"),
            *dict(parse_qsl(split.query)).values(),
        }
    parts |= {unquote(part) for part in parts}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= MIN_SECRET:
            text = re.sub(re.escape(part), STRUCK, text, flags=re.IGNORECASE)
    return text


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return good and url.isascii() and url.isprintable() and " " not in url


def _secret(name: str) -> str:
    try:
        return user_file.read_text(Path(name)).strip()
    except OSError as error:
        raise NotifyError(f"{name}: {error.strerror}") from error
