"""Check an installation: its files, its units, the answer at /-/ready, and the model server's CPU quota."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
from prometheus_client.core import Metric

from omniwatch.bundle import alertmanager, delivery
from omniwatch.bundle.installed_files import CONFIG, UNITS, at, is_packaged, manifest, state_of
from omniwatch.bundle.program_files import InstallError
from omniwatch.bundle.units import SIDECAR, watched
from omniwatch.bundle.wiring import BUNDLE
from omniwatch.core.stream import EARS
from omniwatch.host import cgroup, systemd
from omniwatch.settings import Settings, SettingsError, load
from omniwatch.system import http
from omniwatch.system.dbus import BusError

TIMEOUT_S = 5.0
MAX_METRICS_BYTES = 16 * 2**20
UNAUTHORIZED = 'omni_resume_strangers_total{reason="unauthorized"}'
KNOWN_BY = {"client": "the client's reports", "kernel": "the server's kernel", "sent": "what was sent"}
ABSENT = os.strerror(errno.ENOENT)


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
        yield from units(settings, asked=_asked(root))
        yield _answer(settings)
        yield from counted(settings)
    yield from delivered(settings)
    if root == Path("/"):
        for one in alertmanager.of(settings):
            yield from firing(one, settings.site.device, is_awaited=delivery.is_set(settings))


def _asked(root: Path) -> frozenset[str]:
    """Name the units that were installed; none where that cannot be known."""
    try:
        known = manifest(root)
    except (InstallError, OSError):
        known = None
    return frozenset(PurePosixPath(path).name for path in known.files) if known else frozenset()


def next_steps(settings: Settings, root: Path, *, with_server: bool) -> Iterator[str]:
    """Say what is left to be done after an installation, a line each."""
    if not with_server and not os.path.lexists(at(root, UNITS / settings.server.unit)):
        yield "start the model server with the tap (docs/vllm-omni.md), or: omniwatch install --profile NAME"
    if not delivery.is_set(settings):
        yield f"say who is told of a page in {CONFIG}: receivers, notify.robots or fleet; then: omniwatch check --config.file {CONFIG}"
    if not at(root, BUNDLE).exists():
        yield "have Prometheus scrape and alert: omniwatch install --with-prometheus"
    yield "look: omniwatch status"


def delivered(settings: Settings) -> Iterator[Finding]:
    """Say whom these settings notify of a page, or what keeps it from a person."""
    if not delivery.is_set(settings):
        yield Finding(
            "delivery", None, "not set up: nobody is told of a page; set receivers, notify.robots or fleet"
        )
        return
    wrong = list(delivery.faults(settings))
    for fault in wrong:
        yield Finding("delivery", False, fault)
    if wrong:
        return
    if urls := settings.fleet.alertmanager_urls:
        yield Finding("delivery", True, f"alerts go to the fleet's Alertmanager: {', '.join(urls)}")
    else:
        yield Finding("delivery", True, f"pages go to {', '.join(delivery.notified(settings, 'page'))}")


def firing(server: alertmanager.Alertmanager, device: str, *, is_awaited: bool = True) -> Iterator[Finding]:
    """Ask an Alertmanager what fires on a device, since when, and to which receivers it goes. That it does not answer is a fault where
    it `is_awaited`.
    """
    try:
        found = [alert for alert in server.alerts(device) if alert.labels.get("severity") != "none"]
    except (alertmanager.AlertmanagerError, OSError) as error:
        yield Finding("Alertmanager", False if is_awaited else None, str(error))
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
            f"{name} ({', '.join(filter(None, (severity, alert.labels.get('cause'))))}) since {since}, goes to {who}",
        )


def _files(root: Path) -> Finding:
    try:
        known = manifest(root)
    except InstallError as error:
        return Finding("files", False, str(error))
    if known is None:
        packaged = is_packaged(root)
        return Finding("files", packaged, "installed as a package" if packaged else "not installed")
    odd = ["an installation has not ended: run it again"] if known.intended else []
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


def units(
    settings: Settings, root: Path = Path("/"), asked: frozenset[str] = frozenset()
) -> Iterator[Finding]:
    """Ask systemd for the units' states, and compare the server's CPU quota with the kernel's. A model server that is not
    there is a fault where its unit is among those `asked` for.
    """
    try:
        states = {
            unit: _values(systemd.Reader(_of_unit(settings, unit), root).collect(), unit)
            for unit in watched(settings)
        }
    except BusError as error:
        yield Finding("systemd", False, f"does not answer on the system bus: {error}")
        return
    if not states[SIDECAR.name(settings)].get("omniwatch_systemd_up"):
        yield Finding("systemd", None, "does not run here")
        return
    for unit, values in states.items():
        state = next(
            (key.split()[-1] for key, value in values.items() if "unit_state" in key and value),
            "not installed",
        )
        again = values.get("omni_server_unit_restarts_total", 0)
        note = f", restarted {again:.0f} times" if again else ""
        optional = unit == settings.server.unit and unit not in asked and state == "not installed"
        yield Finding(unit, None if optional else state == "active", state + note)
    cores = states[settings.server.unit].get("omni_server_cpu_quota_asked_cores")
    yield from quota(settings.server.unit, cores, cgroup.Reader(settings, root).collect())


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
        with http.ask(address, timeout_s=TIMEOUT_S) as answer:
            if answer.ok:
                return Finding("sidecar", True, f"ready at {address}: {_line(answer.read(200, cut=True))}")
            why = _line(answer.read(500, cut=True))
    except http.HttpError as error:
        return Finding("sidecar", False, f"{address}: {error}")
    if why and all(part.endswith(ABSENT) for part in why.split("; ")):
        return Finding("sidecar", None, f"waits for the first event: {why}")
    return Finding("sidecar", False, f"not ready: {why}")


def counted(settings: Settings) -> Iterator[Finding]:
    """Say what the sidecar has counted: how its listeners' curves are known, and requests without a turn's own key."""
    try:
        with http.ask(f"http://{settings.site.exporter}/metrics", timeout_s=TIMEOUT_S) as answer:
            lines = (
                answer.read(MAX_METRICS_BYTES).decode("utf-8", "replace").splitlines() if answer.ok else []
            )
    except http.HttpError:
        return
    values = {
        series: float(value)
        for series, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }
    yield from _ears(values)
    if times := values.get(UNAUTHORIZED):
        yield Finding(
            "unauthorized",
            None,
            f"{times:.0f} requests to come back without the Authorization that the turn began with",
        )


def _ears(values: Mapping[str, float]) -> Iterator[Finding]:
    ears = {ear: values.get(f'omni_streams_by_ear{{ear="{ear}"}}', 0.0) for ear in EARS}
    if any(ears.values()):
        known = ", ".join(f"{count:.0f} by {KNOWN_BY[ear]}" for ear, count in ears.items() if count)
        yield Finding("listeners", None, f"curves known {known}")
    if values.get("omniwatch_ear_up") == 0:
        yield Finding(
            "ear", None, "the server's kernel does not say what arrives: curves are of what was sent"
        )


def _line(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split())
