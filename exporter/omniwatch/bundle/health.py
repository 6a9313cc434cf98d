"""Check an installation: its files, its units, the answer at /-/ready, and the model server's CPU quota."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
from prometheus_client.core import Metric

from omniwatch.bundle import alertmanager, bridging, delivery
from omniwatch.bundle.install import CONFIG, SIDECAR_UNIT
from omniwatch.bundle.installed_files import at, is_packaged, manifest, state_of
from omniwatch.bundle.program_files import InstallError
from omniwatch.host import cgroup, systemd
from omniwatch.settings import Settings, SettingsError, load
from omniwatch.system.dbus import BusError

TIMEOUT_S = 5.0


class Finding(NamedTuple):
    """One thing looked at, in one line. `ok` is None where there is nothing to judge."""

    what: str
    ok: bool | None
    says: str


def findings(root: Path = Path("/"), config: Path | None = None) -> Iterator[Finding]:
    """Look at everything. On another file tree than "/" only files can be looked at. `config` is the settings' file, where
    it is not the installation's.
    """
    try:
        yield _files(root)
    except OSError as error:
        yield Finding("files", False, f"{error.filename}: {error.strerror}")
    try:
        config = config or at(root, CONFIG)
        settings = load(config if config.exists() else None)
        yield Finding("configuration", True, str(config) if config.exists() else "none: the defaults")
    except SettingsError as error:
        yield Finding("configuration", False, str(error))
        return
    except OSError as error:
        yield Finding("configuration", False, f"{error.filename}: {error.strerror}")
        return
    if root == Path("/"):
        yield from units(settings)
        yield _answer(settings)
    yield from told(settings)
    if root == Path("/"):
        for one in alertmanager.of(settings):
            yield from firing(one, settings.site.device)


def told(settings: Settings) -> Iterator[Finding]:
    """Say who is told of a page by these settings, or what keeps it from a person."""
    wrong = list(delivery.faults(settings))
    for fault in wrong:
        yield Finding("delivery", False, fault)
    if wrong:
        return
    if urls := settings.fleet.alertmanager_urls:
        yield Finding("delivery", True, f"alerts go to the fleet's Alertmanager: {', '.join(urls)}")
    else:
        yield Finding("delivery", True, f"pages go to {', '.join(delivery.told(settings, 'page'))}")


def firing(server: alertmanager.Alertmanager, device: str) -> Iterator[Finding]:
    """Ask an Alertmanager what fires on a device, since when, and to which receivers it goes."""
    try:
        found = [alert for alert in server.alerts(device) if alert.labels.get("severity") != "none"]
    except (alertmanager.AlertmanagerError, OSError) as error:
        yield Finding("Alertmanager", False, str(error))
        return
    yield Finding("Alertmanager", True, f"answers at {server.url}")
    if not found:
        yield Finding("firing", True, "nothing")
    for alert in sorted(found, key=lambda one: (one.labels.get("severity", ""), one.starts_at)):
        name, severity = alert.labels.get("alertname", "?"), alert.labels.get("severity", "")
        since = alert.starts_at.astimezone().strftime("%m-%d %H:%M:%S")
        who = ", ".join(receiver.name for receiver in alert.receivers) or "nobody"
        if alert.status.state == "suppressed":
            why = "a silence" if alert.status.silenced_by else "an alert that explains it"
            who = f"nobody: held back by {why}"
        yield Finding(
            "firing",
            False if severity == "page" else None,
            f"{name} ({severity}) since {since}, goes to {who}",
        )


def _files(root: Path) -> Finding:
    try:
        known = manifest(root)
    except InstallError as error:
        return Finding("files", False, str(error))
    if known is None:
        packaged = is_packaged(root)
        return Finding("files", packaged, "installed as a package" if packaged else "not installed")
    odd = []
    for path, wanted in known.files.items():
        try:
            now = state_of(at(root, PurePosixPath(path)))
        except OSError as error:
            odd.append(f"{path}: {error.strerror}")
            continue
        if now is None:
            odd.append(f"{path} is missing")
        elif now != wanted and path not in known.configs:
            odd.append(f"{path} was changed")
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    return Finding(
        "files",
        not odd,
        ", ".join(odd[:3]) + more if odd else f"{len(known.files)} as installed, {known.version}",
    )


def units(settings: Settings, root: Path = Path("/")) -> Iterator[Finding]:
    """Ask systemd for the units' states, and compare the server's CPU quota with the kernel's."""

    def told(unit: str) -> dict[str, float]:
        return _values(systemd.Reader(_of_unit(settings, unit), root).collect(), unit)

    try:
        sidecar, server = told(SIDECAR_UNIT), told(settings.server.unit)
        bridge = told(bridging.UNIT) if settings.notify.robots else None
    except BusError as error:
        yield Finding("systemd", False, f"does not answer on the system bus: {error}")
        return
    if not sidecar.get("omniwatch_systemd_up"):
        yield Finding("systemd", None, "does not run here")
        return
    for unit, values in (
        (SIDECAR_UNIT, sidecar),
        (settings.server.unit, server),
        *([(bridging.UNIT, bridge)] if bridge is not None else []),
    ):
        state = next(
            (key.split()[-1] for key, value in values.items() if "unit_state" in key and value),
            "not installed",
        )
        again = values.get("omni_server_unit_restarts_total", 0)
        note = f", restarted {again:.0f} times" if again else ""
        yield Finding(unit, state == "active", state + note)
    asked = server.get("omni_server_cpu_quota_asked_cores")
    yield from quota(settings.server.unit, asked, cgroup.Reader(settings, root).collect())


def quota(unit: str, asked: float | None, limits: Iterable[Metric]) -> Iterator[Finding]:
    """Compare the CPUs that the unit's CPUQuota= allows with what the kernel applies to the unit itself, not to a slice it
    is in.
    """
    has = _values(limits, unit).get("omni_server_cpu_quota_cores")
    if asked is not None and (has is None or abs(has / asked - 1) > 0.02):
        taken = "none" if has is None else f"{has:g} CPUs"
        yield Finding("CPU quota", False, f"{asked:g} CPUs asked for, the kernel applies {taken}")
    elif has is not None:
        yield Finding("CPU quota", None, f"{has:g} CPUs; `omniwatch tune` says what that does to the voice")


def _of_unit(settings: Settings, unit: str) -> Settings:
    return msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, unit=unit))


def _values(families: Iterable[Metric], unit: str) -> dict[str, float]:
    """The samples of one unit, and those of none, by their name and their other labels."""
    return {
        " ".join([s.name, *(v for k, v in s.labels.items() if k != "unit")]): s.value
        for family in families
        for s in family.samples
        if s.labels.get("unit", unit) == unit
    }


def _answer(settings: Settings) -> Finding:
    address = f"http://{settings.site.exporter}/-/ready"
    try:
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
                return Finding("sidecar", True, f"ready at {address}: {_line(answer.read(200))}")
        except urllib.error.HTTPError as error:
            return Finding("sidecar", False, f"not ready: {_line(error.read(500))}")
    except (OSError, ValueError) as error:
        return Finding("sidecar", False, f"{address}: {getattr(error, 'reason', error)}")
    except http.client.HTTPException as error:
        said = _line(str(error).encode()[:100])
        return Finding("sidecar", False, f"{address}: not an answer in HTTP: {said or type(error).__name__}")


def _line(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split())
