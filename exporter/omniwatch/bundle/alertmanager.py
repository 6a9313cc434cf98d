"""Ask a running Alertmanager, the device's own or the fleet's: what fires, a test alert, what was sent."""

from __future__ import annotations

import base64
import ssl
import urllib.parse
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families

from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.settings import Settings
from omniwatch.system import http, user_file
from omniwatch.system.errors import UserError
from omniwatch.system.terminal import one_line

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 16 * 2**20


T = TypeVar("T")


class AlertmanagerError(UserError):
    """Alertmanager is not reached or refuses."""


class GuardedError(AlertmanagerError):
    """A server that answers nobody without a password, or by TLS alone."""


def guard(answer: http.Answer, url: str) -> None:
    """Raise GuardedError where the server wants what no setting has."""
    if answer.status in (401, 403):
        raise GuardedError(f"{url} wants a password (HTTP {answer.status})")
    # What Go's servers, nginx and Apache say to plain HTTP where they serve TLS.
    if answer.status == 400 and b"HTTPS" in answer.read(MAX_ANSWER_BYTES).upper():
        raise GuardedError(f"{url} speaks TLS alone")


class Receiver(msgspec.Struct, frozen=True):
    """A receiver that Alertmanager notifies of an alert."""

    name: str


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """`state` is active, suppressed or unprocessed."""

    state: str
    inhibited_by: list[str] = []
    silenced_by: list[str] = []


class Alert(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an alert that are read here."""

    labels: dict[str, str]
    starts_at: datetime
    status: Status
    receivers: list[Receiver] = []
    updated_at: datetime | None = None
    annotations: dict[str, str] = {}


class _Config(msgspec.Struct, frozen=True):
    original: str


class _Status(msgspec.Struct, frozen=True):
    config: _Config


def load_running(text: str, url: str) -> dict[str, Any]:
    """Read the configuration that a server says it runs with. Raises AlertmanagerError."""
    try:
        config = load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise AlertmanagerError(f"{url}: its configuration is not YAML") from error
    return config if isinstance(config, dict) else {}


class Alertmanager:
    """One Alertmanager's API at `url`, with what the settings say to show there."""

    def __init__(self, url: str, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._fleet = settings.fleet if settings.fleet.alertmanager_urls else None

    def alerts(self, device: str) -> list[Alert]:
        """Return what fires of a device. Raises AlertmanagerError."""
        query = urllib.parse.urlencode({"filter": f'device="{device}"'})
        return self._decoded(f"/api/v2/alerts?{query}", list[Alert])

    def post(self, alerts: list[dict[str, Any]]) -> None:
        """Send alerts. Raises AlertmanagerError."""
        self._call("/api/v2/alerts", msgspec.json.encode(alerts))

    def beats(self) -> bool:
        """Return whether a heartbeat goes out by a webhook there. Raises AlertmanagerError."""
        query = urllib.parse.urlencode({"filter": 'severity="none"'})
        beating = self._decoded(f"/api/v2/alerts?{query}", list[Alert])
        names = {receiver.name for alert in beating for receiver in alert.receivers}
        receivers = self.running().get("receivers") or []
        return any(one.get("webhook_configs") for one in receivers if one.get("name") in names)

    def running(self) -> dict[str, Any]:
        """Return the configuration that it runs with, secrets left out. Raises AlertmanagerError."""
        return load_running(self._decoded("/api/v2/status", _Status).config.original, self.url)

    def sent(self) -> dict[str, tuple[float, float]]:
        """Return how many notifications it has sent and how many attempts failed, by integration. Raises AlertmanagerError."""
        text = self._call("/metrics").decode(errors="replace")
        sent: dict[str, float] = {}
        failed: dict[str, float] = {}
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    name = one_line(sample.labels.get("integration", ""))
                    if sample.name == "alertmanager_notification_requests_total":
                        sent[name] = sent.get(name, 0) + sample.value
                    elif sample.name == "alertmanager_notification_requests_failed_total":
                        failed[name] = failed.get(name, 0) + sample.value
        except ValueError as error:
            raise AlertmanagerError(f"{self.url}/metrics: {error}") from error
        return {name: (count - failed.get(name, 0), failed.get(name, 0)) for name, count in sent.items()}

    def _decoded(self, path: str, of: type[T]) -> T:
        try:
            return msgspec.json.decode(self._call(path), type=of)
        except (msgspec.DecodeError, RecursionError) as error:
            raise AlertmanagerError(f"{self.url}: not Alertmanager's answer: {error}") from error

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        try:
            headers, context = self._headers(), self._context()
        except (OSError, ValueError) as error:
            where, why = getattr(error, "filename", None), getattr(error, "strerror", None)
            raise AlertmanagerError(f"{where or self.url}: {why or error}") from error
        try:
            with http.ask(
                self.url + path, timeout_s=self._timeout_s, body=body, headers=headers, context=context
            ) as answer:
                if self._fleet is None:
                    guard(answer, self.url)
                if not answer.ok:
                    raise AlertmanagerError(f"{self.url}: HTTP {answer.status} {answer.reason}")
                return answer.read(MAX_ANSWER_BYTES)
        except http.HttpError as error:
            raise AlertmanagerError(f"{self.url}: {error}") from error

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        fleet = self._fleet
        if fleet is None:
            return headers
        if fleet.alertmanager_username:
            word = f"{fleet.alertmanager_username}:{_secret(fleet.alertmanager_password_file)}"
            headers["Authorization"] = f"Basic {base64.b64encode(word.encode()).decode()}"
        elif fleet.token_file:
            headers["Authorization"] = f"Bearer {_secret(fleet.token_file)}"
        return headers

    def _context(self) -> ssl.SSLContext | None:
        fleet = self._fleet
        if fleet is None or not self.url.startswith("https:"):
            return None
        # The ssl module does not say which file it could not read.
        for path in filter(None, (fleet.ca_file, fleet.client_cert_file, fleet.client_key_file)):
            user_file.read(Path(path))
        context = ssl.create_default_context(cafile=fleet.ca_file or None)
        if fleet.client_cert_file:
            context.load_cert_chain(fleet.client_cert_file, fleet.client_key_file)
        return context


def of(settings: Settings, timeout_s: float = TIMEOUT_S) -> list[Alertmanager]:
    """Return those that this device's alerts go to; each call of theirs is over within `timeout_s`."""
    urls = settings.fleet.alertmanager_urls or [f"http://{settings.site.alertmanager}"]
    return [Alertmanager(url, settings, timeout_s) for url in urls]


def _secret(path: str) -> str:
    return user_file.read_text(Path(path)).strip()
