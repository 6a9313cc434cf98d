"""The web configuration file (--web.config.file), in the format of Prometheus' exporter-toolkit.

TLS, basic authentication, headers and a rate limit. `http2` is read and has no effect: only HTTP/1 is spoken.
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from omniwatch.system import user_yaml
from omniwatch.system.certificates import families
from omniwatch.system.errors import UserError
from omniwatch.web.tls import REFUSED, TlsServer, make_context

log = logging.getLogger(__name__)

HEADERS: dict[str, Collection[str]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""The headers that may be set; where values are listed, only to those."""
BCRYPT_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


MAX_MESSAGE = 1000
"""Characters of an error: it may quote a name that the file gives."""


class WebConfigError(UserError):
    """The web configuration does not hold. The message: file, setting, what is wrong, and no secret, in one line.

    A long one is cut.
    """

    def __init__(self, message: str) -> None:
        # A name that the file gives may have line breaks in it.
        said = "".join(sign if sign.isprintable() else " " for sign in message)
        super().__init__(said if len(said) <= MAX_MESSAGE else f"{said[:MAX_MESSAGE]}…")


class HttpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`http_server_config`."""

    http2: bool = True
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rate_limit`: `burst` requests at once, then one each `interval` (0: no limit)."""

    interval: str
    burst: Annotated[int, Meta(ge=1)] = 1


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[str, str] = {}
    rate_limit: RateLimit | None = None


@dataclass(frozen=True)
class WebConfig:
    """What holds for connections and requests. `users` maps names to bcrypt hashes, `interval_s` 0 is no limit.

    `expires` says by file when the certificates that `tls` holds expire, None where that cannot be told.
    """

    tls: ssl.SSLContext | None = None
    allowed_sans: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    users: tuple[tuple[bytes, bytes], ...] = ()
    interval_s: float = 0.0
    burst: int = 1
    expires: Mapping[str, float | None] = field(default_factory=dict)


def load(path: Path) -> WebConfig:
    """Read and validate the file and all that it names. Raises WebConfigError."""
    return _build(_parse(path), path)


def _parse(path: Path) -> Document:
    try:
        raw = user_yaml.load(path)
    except OSError as error:
        raise WebConfigError(f"{path}: {error.strerror}") from error
    except user_yaml.YamlError as error:
        raise WebConfigError(f"{path.name}: {error}") from error
    raw = {} if raw is None else raw
    tls = raw.get("tls_server_config") if isinstance(raw, dict) else None
    for setting, why in REFUSED.items():
        if isinstance(tls, dict) and setting in tls:
            raise WebConfigError(f"{path.name}: tls_server_config.{setting}: {why}")
    for section in ("tls_server_config", "rate_limit"):
        if isinstance(raw, dict) and section in raw and raw[section] is None:
            raise WebConfigError(f"{path.name}: {section}: empty; fill it in or leave it out")
    try:
        return msgspec.convert(raw, Document)
    except msgspec.ValidationError as error:
        raise WebConfigError(f"{path.name}: {_explain(str(error))}") from error


def _explain(message: str) -> str:
    """Turn msgspec's message into "setting: what is wrong"; neither holds the value."""
    what, _, where = message.partition(" - at `")
    section = where.removeprefix("key` in `").strip("`$.").replace("[...]", ".*")
    named = re.search("field `(.*)`", what, re.DOTALL)
    if named:
        setting = f"{section}.{named[1]}" if section else named[1]
        return f"{setting}: {'missing' if 'missing' in what else 'no such setting'}"
    words = {
        "str": "text",
        "bool": "true or false",
        "int": "a whole number",
        "array": "a list",
        "object": "a mapping",
    }
    what = re.sub("`([a-z]+)`", lambda kind: words.get(kind[1], kind[1]), what)
    what = what[:1].lower() + what[1:]
    return f"{section + ': ' if section else ''}{'every name: ' if where.startswith('key`') else ''}{what}"


def _build(document: Document, path: Path) -> WebConfig:
    tls, limit = document.tls_server_config, document.rate_limit
    made = None
    try:
        if tls:
            try:
                made = make_context(tls, path.parent)
            except ValueError as error:
                raise ValueError(f"tls_server_config.{error}") from error
        return WebConfig(
            made.context if made else None,
            tuple(tls.client_allowed_sans) if tls else (),
            _headers(document.http_server_config.headers),
            _users(document.basic_auth_users),
            _seconds(limit.interval) if limit else 0.0,
            limit.burst if limit else 1,
            made.expires if made else {},
        )
    except ValueError as error:
        raise WebConfigError(f"{path.name}: {error}") from error


def _headers(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        where = f"http_server_config.headers.{name}"
        if name not in HEADERS:
            raise ValueError(f"{where}: cannot be set; expected one of {', '.join(HEADERS)}")
        if value and HEADERS[name] and value not in HEADERS[name]:
            raise ValueError(f'{where}: expected {" or ".join(HEADERS[name])}, got "{value}"')
        if not (value.isascii() and (value.isprintable() or not value)):
            raise ValueError(f"{where}: expected printable ASCII on one line")
    return tuple((name, value) for name, value in headers.items() if value)


def _users(users: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    for name, password in users.items():
        if ":" in name:
            raise ValueError(f"basic_auth_users.{name}: a user's name cannot hold a colon")
        if not BCRYPT_HASH.fullmatch(password):
            raise ValueError(
                f"basic_auth_users.{name}: not a bcrypt hash; make one with: htpasswd -nBC 10 {name}"
            )
    return tuple((name.encode(), password.encode()) for name, password in users.items())


def _seconds(interval: str) -> float:
    """Read a duration as Go's time.ParseDuration does, which exporter-toolkit uses: without the days, weeks and years of
    Prometheus' own durations (bundle/durations.py).
    """
    if interval == "0":
        return 0.0
    parts = DURATION.findall(interval)
    if not parts or "".join(map("".join, parts)) != interval:
        raise ValueError(
            f'rate_limit.interval: expected a duration such as 500ms or 1s, or "0", got "{interval}"'
        )
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


Signature = tuple[int, int, int] | None


class WatchedConfig:
    """The configuration of a file that may change: read again when it, or a file that it names, does.

    One that does not hold is logged, told in `error`, and changes nothing. Nor does one that would switch TLS or
    authentication off: a file caught half written must not open the door. For that, restart. Safe for several
    threads. Raises WebConfigError when the file does not hold at first.
    """

    def __init__(self, path: Path) -> None:
        self.error: str | None = None
        self._path = path
        self._lock = threading.Lock()
        self._seen: dict[Path, Signature] = {}
        self._config = self._read()

    def current(self) -> WebConfig:
        """Return what holds now."""
        with self._lock:
            if any(_signature(file) != seen for file, seen in self._seen.items()):
                self._reload()
            return self._config

    def expires(self) -> Mapping[str, float | None]:
        """Return when the certificates in use expire, by file; None where that cannot be told."""
        return self.current().expires

    def _reload(self) -> None:
        try:
            self._config, self.error = self._read(self._config), None
        except WebConfigError as error:
            self.error = str(error)
            fields = {"file": str(self._path), "error": self.error}
            log.error("web configuration not reloaded, the old one stays", extra={"fields": fields})
        else:
            log.info("web configuration reloaded", extra={"fields": {"file": str(self._path)}})

    def _read(self, former: WebConfig | None = None) -> WebConfig:
        # What a file was is noted before it is read: a change in between is seen the next time.
        self._seen = {self._path: _signature(self._path)}
        document = _parse(self._path)
        if document.tls_server_config:
            for file in document.tls_server_config.files().values():
                self._seen[self._path.parent / file] = _signature(self._path.parent / file)
        config = _build(document, self._path)
        for setting, was, now in _switches(former or config, config):
            if was and not now:
                raise WebConfigError(f"{self._path.name}: {setting}: gone; restart to serve without")
        return config


def _switches(was: WebConfig, now: WebConfig) -> list[tuple[str, object, object]]:
    verification = "tls_server_config.client_auth_type: RequireAndVerifyClientCert"
    return [
        ("tls_server_config", was.tls, now.tls),
        (verification, _verifies(was), _verifies(now)),
        ("tls_server_config.client_allowed_sans", was.allowed_sans, now.allowed_sans),
        ("basic_auth_users", was.users, now.users),
    ]


def _verifies(config: WebConfig) -> bool:
    return config.tls is not None and config.tls.verify_mode == ssl.CERT_REQUIRED


def _signature(path: Path) -> Signature:
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino


class Served(Collector):
    """The families of a web configuration: whether the file is in use as it stands, and when its certificates expire."""

    def __init__(self, config: WatchedConfig, *, certificates: bool = True) -> None:
        self._config = config
        self._certificates = certificates

    def collect(self) -> Iterator[Metric]:
        """Return the families of one scrape."""
        expires = self._config.expires()
        yield GaugeMetricFamily(
            "omniwatch_web_config_last_reload_successful",
            "Whether the web configuration in use is the one on the disk.",
            float(self._config.error is None),
        )
        if self._certificates:
            yield from families(expires)
