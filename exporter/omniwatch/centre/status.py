"""Show the state of each device of a fleet, as the centre knows it. Pure but for the queries sent through `ask`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from omniwatch.centre.inventory import Device
from omniwatch.centre.query import Sample
from omniwatch.settings.fleet import slack_s
from omniwatch.system.terminal import one_line

Ask = Callable[[str], list[Sample]]
"""An instant query."""
State = Literal["well", "pages", "silent", "never seen"]
AHEAD_S = 5.0
"""A device's clock that is no further ahead is not worth a word."""

_WHO = "max by (device, site, model, release)"
HEARD = f"{_WHO} (last_over_time(uplink:time_seconds[20m] offset -10m) or device:last_seen:timestamp_seconds)"
"""Ten minutes of the future are looked at, too: there are the samples of a device whose clock is ahead."""
CARRIED_ON = "count(device:last_seen:timestamp_seconds)"
HEARD_IN_A_DAY = f"{_WHO} (max_over_time(uplink:time_seconds[1d] offset -10m))"
"""For a centre without the fleet's rules, which carry a silent device's last word on."""
HEARD_LATELY = "max by (device) (changes(device:last_seen:timestamp_seconds[{silent}s])) > 0"
"""Of these something comes in, however old it is by their own clocks."""
DRIFT = "max by (device) (max_over_time(uplink:drift_abs_ms:max[{window}]))"
RTT = "max by (device) (last_over_time(uplink:rtt_ms:p95[{window}]))"
RESUMED = (
    "clamp_max(sum by (device) (increase(uplink:resumes_well_total[{window}]))"
    " / (sum by (device) (increase(uplink:resumes_total[{window}])) > 0), 1)"
)
FIRING = (
    "count by (device, alertname, severity) ("
    "uplink:alert_firing >= on (device) group_left () max by (device) (uplink:time_seconds) - {slack}"
    ' or ALERTS{{alertstate="firing",device!=""}})'
)
"""Of the time of the device's newest sample: Prometheus' agent does not say that a series is over."""


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the centre knows of one device; what was not measured is None.

    `last_seen_t` is on the device's own clock, as all of its samples are.
    """

    device: str
    site: str = ""
    model: str = ""
    release: str = ""
    state: State
    listed: bool
    """Whether the fleet file has it."""
    last_seen_t: float | None = None
    age_s: float | None = None
    worst_drift_ms: float | None = None
    rtt_p95_ms: float | None = None
    resume_success: float | None = None
    pages: list[str] = []
    tickets: list[str] = []


def rows(
    ask: Ask, devices: Sequence[Device], now: float, window_s: int, silent_after_s: float, interval_s: int
) -> list[DeviceStatus]:
    """Ask the centre and return every device that it heard or that should be there.

    Drift is the worst of the last `window_s` seconds, resumes are counted over them. A device sends a sample of each series
    in `interval_s`.
    """
    heard = _newest([*ask(HEARD), *([] if ask(CARRIED_ON) else ask(HEARD_IN_A_DAY))])
    alive = _by_device(ask(HEARD_LATELY.format(silent=round(silent_after_s))))
    window = f"{window_s}s"
    drift, rtt, resumed = (_by_device(ask(query.format(window=window))) for query in (DRIFT, RTT, RESUMED))
    firing = _firing(ask(FIRING.format(slack=slack_s(interval_s))))
    listed = {device.name: device for device in devices}
    found = []
    for name in dict.fromkeys([*listed, *sorted(heard)]):
        labels = listed[name].labels if name in listed else {}
        seen = heard.get(name)
        if seen is not None:
            labels = {**labels, **seen.labels}
        age_s = None if seen is None else now - seen.value
        pages = sorted(firing.get((name, "page"), ()))
        found.append(
            DeviceStatus(
                device=name,
                site=labels.get("site", ""),
                model=labels.get("model", ""),
                release=labels.get("release", ""),
                state=_state(age_s, silent_after_s if name not in alive else math.inf, pages),
                listed=name in listed,
                last_seen_t=None if seen is None else seen.value,
                age_s=age_s,
                worst_drift_ms=drift.get(name),
                rtt_p95_ms=rtt.get(name),
                resume_success=resumed.get(name),
                pages=pages,
                tickets=sorted(firing.get((name, "ticket"), ())),
            )
        )
    return found


def _state(age_s: float | None, silent_after_s: float, pages: list[str]) -> State:
    if age_s is None:
        return "never seen"
    if age_s > silent_after_s:
        return "silent"
    return "pages" if pages else "well"


def _newest(samples: Iterable[Sample]) -> dict[str, Sample]:
    """Return each device's newest time; one that was given another release has a series for each."""
    found: dict[str, Sample] = {}
    for sample in samples:
        name = sample.labels.get("device", "")
        if name and math.isfinite(sample.value) and (name not in found or found[name].value <= sample.value):
            found[name] = sample
    return found


def _by_device(samples: Iterable[Sample]) -> dict[str, float]:
    return {
        sample.labels["device"]: sample.value
        for sample in samples
        if "device" in sample.labels and math.isfinite(sample.value)
    }


def _firing(samples: Iterable[Sample]) -> dict[tuple[str, str], set[str]]:
    """Return the names of the alerts by device and severity."""
    found: dict[tuple[str, str], set[str]] = {}
    for labels, _ in samples:
        place = labels.get("device", ""), labels.get("severity", "")
        found.setdefault(place, set()).add(labels.get("alertname", "?"))
    return found


SORTS: dict[str, Callable[[DeviceStatus], tuple[float | str, ...]]] = {
    "state": lambda row: (("pages", "silent", "never seen", "well").index(row.state), row.device),
    "device": lambda row: (row.device,),
    "site": lambda row: (row.site, row.device),
    "release": lambda row: (row.release, row.device),
    "seen": lambda row: (-math.inf if row.age_s is None else -row.age_s, row.device),
    "drift": lambda row: (-(row.worst_drift_ms or 0), row.device),
    "rtt": lambda row: (-(row.rtt_p95_ms or 0), row.device),
    "resume": lambda row: (math.inf if row.resume_success is None else row.resume_success, row.device),
    "firing": lambda row: (-len(row.pages), -len(row.tickets), row.device),
}
"""The orders a table may have: names as they are, what is measured worst first."""

COLUMNS = ("device", "site", "release", "last seen", "drift ms", "rtt p95", "resumed", "firing")


def table(found: Sequence[DeviceStatus]) -> str:
    """Return the rows as lines of text, under a heading."""
    lines = [COLUMNS, *map(_cells, found)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        for line in lines
    )


def summary(found: Sequence[DeviceStatus]) -> str:
    """Return one line: how many devices, and how many of them are not well in which way."""
    counts = {
        state: sum(row.state == state for row in found) for state in ("well", "pages", "silent", "never seen")
    }
    strangers = sum(not row.listed for row in found)
    parts = [
        f"{count} {'with pages' if state == 'pages' else state}" for state, count in counts.items() if count
    ]
    if strangers and strangers < len(found):
        parts.append(f"{strangers} not in the fleet file")
    return f"{len(found)} device{'' if len(found) == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def _cells(row: DeviceStatus) -> tuple[str, ...]:
    drift, rtt = ("-" if value is None else f"{value:.0f}" for value in (row.worst_drift_ms, row.rtt_p95_ms))
    share = "-" if row.resume_success is None else f"{row.resume_success:.1%}"
    firing = ", ".join([*row.pages, *(f"({name})" for name in row.tickets)]) or "-"
    name = row.device if row.listed else f"{row.device} *"
    cells = name, row.site or "-", row.release or "-", _ago(row), drift, rtt, share, firing
    return tuple(map(one_line, cells))


def _ago(row: DeviceStatus) -> str:
    if row.age_s is None:
        return "never"
    if row.age_s < -AHEAD_S:
        return f"clock {_span(-row.age_s)} ahead"
    return f"{_span(max(row.age_s, 0))} ago" + (", silent" if row.state == "silent" else "")


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
