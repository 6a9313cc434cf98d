"""Check an installation: its files, its units, the answer at /-/ready, and the model server's CPU quota."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import msgspec
from prometheus_client.core import Metric

from omniwatch.bundle import delivery, paging_health, servers, systemctl, wiring
from omniwatch.bundle.alertmanager import Alert
from omniwatch.bundle.finding import Finding, Unseen
from omniwatch.bundle.installed_files import (
    CONFIG,
    UNITS,
    configuration,
    is_packaged,
    manifest,
    state_of,
)
from omniwatch.bundle.program_files import InstallError
from omniwatch.bundle.units import SIDECAR, watched
from omniwatch.bundle.wiring import BUNDLE
from omniwatch.core.stream import EARS
from omniwatch.host import cgroup, systemd
from omniwatch.settings import Settings, SettingsError, digest, load
from omniwatch.system import parts, rooted
from omniwatch.system.dbus import BusError

UNAUTHORIZED = 'omni_resume_strangers_total{reason="unauthorized"}'
KNOWN_BY = {"client": "the client's reports", "kernel": "the server's kernel", "sent": "what was sent"}
ABSENT = os.strerror(errno.ENOENT)


def findings(root: Path = Path("/"), config: Path | None = None) -> Iterator[Finding]:
    """Look at everything. On another file tree than "/" only files can be looked at. `config` is the settings' file, where
    it is not the installation's.
    """
    try:
        yield _files(root)
    except OSError as error:
        yield Unseen("files", False, f"{error.filename}: {error.strerror}")
    settings = None
    try:
        read = load(config) if config else configuration(root)
        settings = read or Settings()
        source = str(config or rooted.shown(root, CONFIG)) if read else "none: the defaults"
        yield Finding("configuration", True, source)
    except SettingsError as error:
        kind = Unseen if str(error).endswith(os.strerror(errno.EACCES)) else Finding
        yield kind("configuration", False, str(error))
    except OSError as error:
        yield Unseen("configuration", False, f"{error.filename}: {error.strerror}")
    # What does not hold keeps nobody from looking at the rest, at the addresses and units of the defaults.
    if root == Path("/"):
        for lack in parts.lacking(settings or Settings()):
            yield Finding("program", False, lack)
        yield from running_here(settings or Settings(), root, holds=settings is not None)
    elif settings:
        yield from delivered(settings)


def running_here(settings: Settings, root: Path = Path("/"), *, holds: bool = True) -> Iterator[Finding]:
    """Look at what runs: units, servers, deliveries. Settings that do not hold are not compared with anything."""
    answers = servers.ask(settings)
    now = datetime.now(timezone.utc)
    states = list(units(settings, root, asked=_asked(root)))
    yield from states
    down = {one.what for one in states if one.ok is False and not one.says.startswith("active")}
    sidecar = _answer(answers.ready, settings)
    is_well = SIDECAR.name(settings) not in down and sidecar.ok is not False
    if SIDECAR.name(settings) not in down:
        yield sidecar
    if holds and is_well:
        yield from _digest(answers.digest, settings)
    yield from counted(answers.metrics)
    yield from congestion(answers.streams)
    bundle = list(paging_health.written(settings, root)) if holds else []
    yield from bundle
    if holds:
        yield from delivered(settings)
    is_awaited = bool(wiring.wired(root)) or (holds and delivery.is_set(settings))
    yield from paging_health.judged(
        settings,
        answers,
        root,
        down=down,
        is_awaited=is_awaited,
        sidecar_is_well=is_well,
        bundle_is_well=all(one.ok for one in bundle),
        now=now,
    )
    if holds:
        yield from paging_health.robots(settings, answers, down=down, now=now)
    for _, alerts in answers.alerts:
        if not isinstance(alerts, servers.Unanswered):
            yield from firing(alerts)


def _asked(root: Path) -> frozenset[str]:
    """Name the units that were installed; none where that cannot be known."""
    try:
        known = manifest(root)
    except (InstallError, OSError):
        known = None
    return frozenset(PurePosixPath(path).name for path in known.files) if known else frozenset()


def next_steps(settings: Settings, root: Path, *, with_server: bool) -> Iterator[str]:
    """Say what is left to be done after an installation, a line each."""
    if not with_server and not rooted.is_there(root, UNITS / settings.server.unit):
        yield "start the model server with the tap (docs/vllm-omni.md), or: omniwatch install --profile NAME"
    if not delivery.is_set(settings):
        yield f"say who is told of a page in {CONFIG}: receivers, notify.robots or fleet; then: omniwatch check"
    if not rooted.is_folder(root, BUNDLE):
        yield "have Prometheus scrape and alert: omniwatch install --with-prometheus"
    if with_server:
        yield "see what BBR is worth where a listener's network loses packets: omniwatch tune --congestion"
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


def firing(alerts: Iterable[Alert]) -> Iterator[Finding]:
    """Say what fires on a device by its Alertmanager, since when, and to which receivers it goes."""
    found = [alert for alert in alerts if alert.labels.get("severity") not in ("none", "state")]
    if not found:
        yield Finding("firing", True, "nothing")
    for alert in sorted(found, key=lambda one: (one.labels.get("severity", ""), one.starts_at)):
        name, severity = alert.labels.get("alertname", "?"), alert.labels.get("severity", "")
        cause = alert.labels.get("cause") or alert.annotations.get("cause")
        since = alert.starts_at.astimezone().strftime("%m-%d %H:%M:%S")
        who = ", ".join(receiver.name for receiver in alert.receivers) or "nobody"
        if alert.status.state == "suppressed":
            why = "a silence" if alert.status.silenced_by else "an alert that explains it"
            who = f"nobody: held back by {why}"
        yield Finding(
            "firing",
            False if severity == "page" else None,
            f"{name} ({', '.join(filter(None, (severity, cause)))}) since {since}, goes to {who}",
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
    # `units` asks systemd which unit is disabled, so its missing .wants link is no finding here.
    links = [path for path in known.files if ".wants/" in path] if systemctl.running(root) else []
    for path, wanted in known.files.items():
        try:
            now = state_of(root, PurePosixPath(path))
        except OSError as error:
            odd.append(f"{path}: {error.strerror}")
            continue
        if now is None and path in links:
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
    names = [*watched(settings), *(server.unit for server in wiring.wired(root))]
    try:
        states = {
            unit: _values(systemd.Reader(_of_unit(settings, unit), root).collect(), unit) for unit in names
        }
        if not states[SIDECAR.name(settings)].get("omniwatch_systemd_up"):
            yield Finding("systemd", None, "does not run here")
            return
        starts = {unit: systemd.start_of(unit, root) for unit in names}
    except BusError as error:
        yield Unseen("systemd", False, f"does not answer on the system bus: {error}")
        return
    for unit, values in states.items():
        loaded, file_state = starts[unit]
        state = next((key.split()[-1] for key, value in values.items() if "unit_state" in key and value), "")
        again = values.get("omni_server_unit_restarts_total", 0)
        note = f", restarted {again:.0f} times" if again else ""
        is_ours = unit != settings.server.unit or unit in asked
        if loaded == "masked" or file_state.startswith("masked"):
            yield Finding(unit, False, f"masked, so nothing starts it: systemctl unmask {unit}")
        elif not state:
            yield Finding(unit, False if is_ours else None, "not installed")
        elif state == "failed":
            says = f"failed{note}: journalctl -u {unit} says why; once mended: systemctl reset-failed {unit}, and start it"
            yield Finding(unit, False, says)
        elif state != "active":
            yield Finding(unit, False, f"{state}{note}")
        elif file_state == "disabled":
            says = f"active{note}, disabled: it does not start with the device; systemctl enable {unit}"
            yield Finding(unit, False if is_ours else None, says)
        else:
            yield Finding(unit, True, f"{state}{note}")
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


def _answer(ready: servers.Page | servers.Unanswered, settings: Settings) -> Finding:
    address = f"http://{settings.site.exporter}/-/ready"
    if isinstance(ready, servers.Unanswered):
        return Finding("sidecar", False, ready.why)
    why = _line(ready.text[:500])
    if ready.is_ok:
        return Finding("sidecar", True, f"ready at {address}: {why[:200]}")
    if why and all(part.endswith(ABSENT) for part in why.split("; ")):
        return Finding("sidecar", None, f"waits for the first event: {why}")
    return Finding("sidecar", False, f"not ready: {why}")


def _digest(served: servers.Page | servers.Unanswered, settings: Settings) -> Iterator[Finding]:
    """Compare what the sidecar runs with against the settings' file, where it says."""
    if isinstance(served, servers.Unanswered):
        return
    if not served.is_ok:
        yield Finding(
            "sidecar's configuration", None, "not compared: the sidecar does not say what it runs with"
        )
    elif served.text.strip() == digest(settings):
        yield Finding("sidecar's configuration", True, "runs as written")
    else:
        says = "is not what is written: systemctl reload omniwatch, or restart it after an upgrade"
        yield Finding("sidecar's configuration", False, says)


def counted(metrics: servers.Page | servers.Unanswered) -> Iterator[Finding]:
    """Say what the sidecar has counted: how its listeners' curves are known, and requests without a turn's own key."""
    lines = metrics.text.splitlines() if isinstance(metrics, servers.Page) and metrics.is_ok else []
    values = {}
    for line in lines:
        series, _, value = line.rpartition(" ")
        # Whatever answers in the sidecar's place need not have numbers.
        with suppress(ValueError):
            values[series] = float(value)
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


class _Stream(msgspec.Struct):
    congestion: str | None = None
    held_back: bool = False


def congestion(streams: servers.Page | servers.Unanswered) -> Iterator[Finding]:
    """Say which congestion control listeners' connections have, and where that is what holds speech back."""
    listeners: list[_Stream] = []
    # Whatever answers in the sidecar's place need not have streams.
    with suppress(msgspec.MsgspecError, RecursionError):
        if isinstance(streams, servers.Page):
            listeners = msgspec.json.decode(streams.text, type=dict[str, list[_Stream]]).get("streams", [])
    if known := Counter(one.congestion for one in listeners if one.congestion):
        has = ", ".join(f"{count} by {name}" for name, count in sorted(known.items()))
        slow = sum(one.held_back for one in listeners)
        more = f"; loss holds {slow} of them back: see `omniwatch tune --congestion`" if slow else ""
        yield Finding("congestion control", None, f"listeners {has}{more}")


def _line(text: str) -> str:
    return " ".join(text.split())
