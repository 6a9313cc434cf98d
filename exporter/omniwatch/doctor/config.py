"""Read the configuration without its secrets, and list the secrets so that other files can be cleaned of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.doctor.redact import COMMON, GONE, SECRET_NAME, pieces, scrubbed
from omniwatch.settings import Settings
from omniwatch.system import user_file, user_yaml
from omniwatch.web.config import Document

_USER = re.compile(r"user(?:name)?", re.IGNORECASE)
Piece = tuple[str, str]
"""A file of the bundle: its name, and its text."""


def gather(device: DeviceAccess) -> Iterator[Piece]:
    """Yield both configurations as what they say, comments and secrets left out. Raises AbsentError at the end."""
    missing = []
    for path, name, shape in (
        (device.config, "config/omniwatch.yaml", Settings),
        (device.web_config, "config/web.yml", Document),
    ):
        if path is None:
            continue
        try:
            raw = _parsed(path)
        except AbsentError as error:
            missing.append(str(error))
            continue
        kept = scrubbed(raw, known_shape=_has_shape(raw, shape))
        if shape is Document and isinstance(kept, dict):
            kept = _without_users(kept)
        yield name, yaml.safe_dump(kept, allow_unicode=True, sort_keys=False)
    if device.config is None:
        missing.append("no omniwatch.yaml: the defaults hold")
    if missing:
        raise AbsentError("; ".join(missing))


def _without_users(web: dict[str, Any]) -> dict[str, Any]:
    """Names and password hashes go; so do headers' values, which may be tokens."""
    if "basic_auth_users" in web:
        web["basic_auth_users"] = GONE
    server = web.get("http_server_config")
    if isinstance(server, dict) and isinstance(server.get("headers"), dict):
        server["headers"] = dict.fromkeys(server["headers"], GONE)
    return web


def _parsed(path: Path) -> Any:
    try:
        return user_yaml.load(path)
    except OSError as error:
        raise AbsentError(f"{path}: {error.strerror}") from error
    except user_yaml.YamlError as error:
        where = f", line {error.line}" if error.line else ""
        raise AbsentError(f"{path}: not YAML{where}; left out") from error


def _has_shape(raw: Any, shape: type) -> bool:
    try:
        msgspec.convert({} if raw is None else raw, shape)
    except msgspec.ValidationError:
        return False
    return True


def secrets(device: DeviceAccess) -> list[str]:
    """Return what is secret on this device, by value: of the configurations, the files they name, the environment."""
    found = [found for name, value in device.environment.items() for found in _named(name, value)]
    for path in (device.config, device.web_config):
        with contextlib.suppress(AbsentError):
            found += _of(_parsed(path) if path else None, "")
    return list(dict.fromkeys(found))


def _named(name: str, value: str) -> Iterable[str]:
    """Return what is secret for its name, as far as a user's name is not a word of the bundle's own."""
    found = (value,) if _is_secret(name, value) else ()
    return _telling(found) if _USER.fullmatch(name) else found


def _is_secret(name: str, value: str) -> bool:
    return (
        bool(SECRET_NAME.search(name))
        and not name.lower().endswith(("_file", "_path", "_dir"))
        and bool(value)
    )


def _of(value: Any, name: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            # Users and their hashes: both sides.
            yield from _telling((str(key),)) if name == "basic_auth_users" else ()
            yield from _of(item, str(key) if name not in ("basic_auth_users", "headers") else "secret")
    elif isinstance(value, list):
        for item in value:
            yield from _of(item, name)
    elif isinstance(value, (str, int)) and not isinstance(value, bool):
        if name.endswith("_file") and isinstance(value, str):
            yield from _in_file(Path(value))
        elif name in ("mention", "email_to"):
            yield str(value)
        elif _is_secret(name, str(value)):
            yield from _named(name, str(value))
        elif name.endswith("webhook_url") and "://127.0.0.1" not in str(value):
            yield from _telling(pieces(str(value)))


def _telling(words: Iterable[str]) -> Iterator[str]:
    """Leave out what is a word of the bundle's own."""
    return (word for word in words if word.casefold() not in COMMON)


def _in_file(path: Path) -> Iterator[str]:
    """A file that holds one secret on a line; a certificate's or a container's file does not."""
    try:
        text = user_file.read_text(path, 4095).strip()
    except OSError:
        return
    if text and "\n" not in text:
        yield text
        yield from _telling(pieces(text)) if "://" in text else ()
