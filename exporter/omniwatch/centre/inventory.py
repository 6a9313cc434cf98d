"""The fleet file: which devices there are, where each serves its metrics, and what it is labelled with."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import yaml
from msgspec import Meta

from omniwatch.centre.hours import is_on
from omniwatch.centre.hours import parse as parse_hours
from omniwatch.settings import explain
from omniwatch.system import ports, user_file, user_yaml
from omniwatch.system.errors import UserError

LABELS = ("device", "site", "model", "release")
"""What every series of a device is labelled with, by discovery here as by the device's own uplink."""
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
)
_PATH = re.compile(r"(?:/[A-Za-z0-9/._~!$&'()*+,;=:@%-]*)?")

Label = Annotated[str, Meta(max_length=128)]


class InventoryError(UserError):
    """A fleet file that does not hold. The message: file, place, what was wrong."""


class Target(NamedTuple):
    """Where a device is scraped, as Prometheus has it."""

    address: str
    scheme: str = "http"
    path: str = "/metrics"


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device. Its name is the label `device` of all its series, wherever they come from."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
    address: str
    """host, host:port, or an http(s) address when there is TLS in front or another path."""
    site: Label = ""
    model: Label = ""
    release: Label = ""
    hours: list[str] = []
    """When it is on, as "mo-fr 05:00-23:30", in the file's `timezone`; empty, always."""

    def __post_init__(self) -> None:
        """Refuse an address that cannot be scraped, and hours that are none."""
        _target(self.address)
        for text in self.hours:
            parse_hours(text)

    def is_on(self, now: datetime) -> bool:
        """Whether its hours say that it is on, at a time with a zone."""
        return is_on([parse_hours(text) for text in self.hours], now)

    @property
    def target(self) -> Target:
        """Where it is scraped."""
        return _target(self.address)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels; what is empty is none."""
        values = zip(LABELS, (self.name, self.site, self.model, self.release), strict=True)
        return {label: value for label, value in values if value}


class Inventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a fleet file. No two devices share a name, nor the place they are scraped at."""

    devices: list[Device]
    timezone: str = "UTC"
    """IANA name of the zone that `hours` are in."""

    def __post_init__(self) -> None:
        """Refuse a device that is there twice, and a zone that is none."""
        try:
            _ = self.zone
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f'timezone: no time zone "{self.timezone}" here') from error
        names: dict[str, int] = {}
        targets: dict[Target, int] = {}
        for at, device in enumerate(self.devices):
            if (first := names.setdefault(device.name, at)) != at:
                raise ValueError(f'devices[{at}].name: "{device.name}" is devices[{first}], too')
            if (first := targets.setdefault(device.target, at)) != at:
                raise ValueError(f'devices[{at}].address: "{device.address}" is devices[{first}], too')

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The zone that `hours` are in."""
        return zoneinfo.ZoneInfo(self.timezone)


def load(path: Path) -> Inventory:
    """Read a fleet file. Raises InventoryError."""
    try:
        content = user_file.read(path, user_yaml.MAX_BYTES)
    except OSError as error:
        raise InventoryError(f"{path}: {error.strerror}") from error
    return parse(content, path.name)


def parse(text: str | bytes, name: str = "fleet.yaml") -> Inventory:
    """Validate a fleet file's text. Raises InventoryError that names the device's place and what was wrong."""
    try:
        raw = user_yaml.parse(text, unique=True)
    except user_yaml.YamlError as error:
        raise InventoryError(f"{name}: {error}") from error
    try:
        return msgspec.convert(raw, Inventory)
    except msgspec.ValidationError as error:
        raise InventoryError(f"{name}: {explain(str(error), raw, Inventory)}") from error


def dump(devices: Sequence[Device]) -> str:
    """Write devices as a fleet file."""
    text: str = yaml.safe_dump(
        {"devices": [{k: v for k, v in msgspec.to_builtins(device).items() if v} for device in devices]},
        sort_keys=False,
        allow_unicode=True,
    )
    return text


def _target(address: str) -> Target:
    """Read an address. Raises ValueError."""
    wrong = ValueError(f'address: expected host:port or http(s)://host:port/path, got "{address}"')
    scheme, _, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    parts = _HOST.fullmatch(host)
    if scheme not in ("", "http", "https") or parts is None or int(parts["port"] or 0) > 65535:
        raise wrong
    if not scheme:
        if slash:
            raise wrong
        # Without a port, the sidecar's.
        return Target(host if parts["port"] else f"{host}:{ports.SIDECAR}")
    if not _PATH.fullmatch(slash + path):
        raise wrong
    return Target(host, scheme, slash + path or "/metrics")
