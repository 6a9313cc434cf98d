"""Logging as Prometheus' own programs do it: one line an event, logfmt or JSON, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TextIO

FORMATS = ("logfmt", "json")
LEVELS = ("debug", "info", "warn", "error")


class LineFormatter(logging.Formatter):
    """`ts=… level=… msg=… key=value …`, or the same as a JSON object; keys come from `extra={"fields": {…}}`."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        level = {"WARNING": "warn", "CRITICAL": "error"}.get(record.levelname, record.levelname.lower())
        ts = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {"ts": ts.replace("+00:00", "Z"), "level": level, "msg": record.getMessage()}
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if self._as_json:
            return _printable(json.dumps(fields, ensure_ascii=False, default=str))
        return " ".join(f"{key}={_value(value)}" for key, value in fields.items())


def _value(value: object) -> str:
    text = str(value)
    is_bare = text and text.isprintable() and not any(c in text for c in ' "=')
    return text if is_bare else _printable(json.dumps(text, ensure_ascii=False))


def _printable(document: str) -> str:
    """Escape in JSON what it may hold as it is, and a terminal takes for a command: U+007F, U+009B and others."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in document)


def setup(level: str, form: str, stream: TextIO = sys.stderr) -> None:
    """Send the package's log to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(form == "json"))
    logger = logging.getLogger("omniwatch")
    logger.handlers[:] = [handler]
    logger.setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logger.propagate = False


class LogThrottle:
    """Lets a kind of message through once in `every_s` seconds, so that trouble cannot fill a disk."""

    def __init__(self, clock: Callable[[], float], every_s: float = 60.0) -> None:
        self._clock = clock
        self._every_s = every_s
        self._next: dict[str, float] = {}

    def __call__(self, kind: str) -> bool:
        """Whether a message of this kind may be logged now."""
        now = self._clock()
        if now < self._next.get(kind, now):
            return False
        self._next[kind] = now + self._every_s
        return True
