"""Write SUMMARY.md: what is wrong, what could not be gathered, what the bundle contains. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

from prometheus_client.parser import text_string_to_metric_families

from omniwatch import __version__
from omniwatch.doctor import journal
from omniwatch.doctor.bundle import Evidence

FULL_SHARE = 90.0
"""Percent of a disk in use from which on it is worth a line."""
HARMLESS = ("Watchdog",)
Metrics = list[tuple[str, dict[str, str], float]]


def write(evidence: Evidence, device: str, t: float) -> str:
    """Return the page in Markdown. `t` is seconds since the epoch."""
    when = datetime.fromtimestamp(t, timezone.utc)
    seen = {**evidence.files, **evidence.raw}
    found = [evidence.redact(line) for look in LOOKS for line in _safely(look, seen)]
    # A log's line is cut short, so it comes from a file already redacted: redaction does not find half a secret.
    wrong = [_line(line) for line in (*found, *_safely(_errors, evidence.files))]
    parts = [
        f"# {device}, {when:%Y-%m-%d %H:%M:%S} UTC",
        f"Gathered by omniwatch {__version__}. Secrets, what users said, clients' ids and, where a port follows, their addresses are left out.",
        "## What is wrong",
        "\n".join(f"- {line}" for line in wrong) or "Nothing that shows in what could be gathered.",
        "## What could not be had",
        "\n".join(f"- **{name}**: {_line(why)}" for name, why in evidence.missing.items())
        or "Everything was there.",
        "## What is here",
        "\n".join(
            f"- `{name}` ({len(text.encode('utf-8', 'replace'))} bytes)"
            for name, text in evidence.files.items()
        )
        or "Nothing.",
    ]
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())


def _safely(look: Callable[[dict[str, str]], Iterator[str]], files: dict[str, str]) -> list[str]:
    """What is in the files may be anything: a look at it that fails says so."""
    try:
        return list(look(files))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"{look.__name__.strip('_')}: not to be read ({type(error).__name__})"]


def _alerts(files: dict[str, str]) -> Iterator[str]:
    if "prometheus/alerts.json" not in files:
        return
    for alert in json.loads(files["prometheus/alerts.json"])["data"]["alerts"]:
        annotations = alert.get("annotations", {})
        labels = (
            {"cause": annotations["cause"], **alert["labels"]} if "cause" in annotations else alert["labels"]
        )
        if labels["alertname"] in HARMLESS:
            continue
        which = " ".join(
            f"{name} {labels[name]}"
            for name in ("cause", "device", "stream", "unit", "source")
            if name in labels
        )
        said = annotations.get("description") or annotations.get("summary", "")
        said = " ".join(filter(None, [annotations.get("why"), said]))
        state = "fires" if alert["state"] == "firing" else alert["state"]
        yield (
            f"**{labels['alertname']}** {state} ({labels.get('severity', '-')}) {which} "
            f"since {alert.get('activeAt', '?')}: {said}"
        )


def _status(files: dict[str, str]) -> Iterator[str]:
    for finding in json.loads(files.get("status.json", "[]")):
        if finding["ok"] is False:
            yield f"{finding['what']}: {finding['says']}"


def _signals(files: dict[str, str]) -> Iterator[str]:
    for name, labels, value in _samples(files.get("sidecar/metrics.prom", "")):
        if name == "omniwatch_source_up" and value == 0:
            yield f"source {labels.get('source')} cannot be read"
        elif name == "omniwatch_source_lag_seconds" and value > 5:
            yield f"source {labels.get('source')} is read {value:.0f} s late"
        elif name in ("omniwatch_events_lost_total", "omniwatch_events_invalid_total") and value > 0:
            what = "lost" if "lost" in name else "were not events"
            yield f"{value:.0f} lines of {labels.get('source')} {what} since the sidecar's counters began"
        elif name == "omniwatch_config_last_reload_successful" and value == 0:
            yield "the sidecar refused its settings file and runs with the old one"


def _machine(files: dict[str, str]) -> Iterator[str]:
    found = [
        sample
        for name in ("cgroup", "jetson", "memory")
        for sample in _samples(files.get(f"readers/{name}.prom", ""))
    ]
    values = {name: value for name, _, value in found}
    periods, stopped = (
        values.get(f"omni_server_cpu_{kind}_total", 0) for kind in ("periods", "throttled_periods")
    )
    if periods and stopped:
        yield f"the CPU quota stopped the model server in {stopped / periods:.1%} of {periods:.0f} periods"
    for name, labels, value in found:
        if name == "jetson_throttle_alert" and value > 0:
            yield f"{labels.get('block')} is throttled for its heat (state {value:g})"
        elif name == "jetson_soctherm_oc_events_total" and value > 0:
            yield f"{value:.0f} times throttled by {labels.get('oc')} since it was switched on"
    free, total = (values.get(f"omni_device_memory_{kind}bytes") for kind in ("available_", ""))
    if free is not None and total and free / total < 0.05:
        yield f"{free / total:.1%} of the memory can still be had"
    for match in re.finditer(r"^(\S+): ([\d.]+)% of", files.get("system/disk.txt", ""), re.MULTILINE):
        if float(match[2]) >= FULL_SHARE:
            yield f"{match[1]} is {match[2]} % full"
    if "NTPSynchronized=no" in files.get("system/clock.txt", ""):
        yield "the clock is not synchronised"


def _units(files: dict[str, str]) -> Iterator[str]:
    for name, text in files.items():
        if name.startswith("systemd/"):
            said = dict(line.partition("=")[::2] for line in text.splitlines())
            if said.get("ActiveState") == "failed":
                yield f"{name[8:-4]} has failed: {said.get('Result')}, exit status {said.get('ExecMainStatus')}"
            elif said.get("NRestarts", "0") not in ("0", ""):
                yield f"{name[8:-4]} was started again {said['NRestarts']} times"


def _errors(files: dict[str, str]) -> Iterator[str]:
    for name, text in files.items():
        if name.startswith("journal/"):
            for line in journal.errors(text.splitlines()):
                yield f"{name[8:-4]}: `{line[:300].replace('`', chr(39))}`"


def _samples(text: str) -> Metrics:
    return [
        (s.name, s.labels, s.value) for family in text_string_to_metric_families(text) for s in family.samples
    ]


LOOKS = (_alerts, _status, _signals, _machine, _units)
