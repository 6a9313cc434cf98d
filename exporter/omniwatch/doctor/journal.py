"""Read the units' journals, one line an entry, without users' words and clients' addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec

from omniwatch.bundle.units import watched
from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.doctor.redact import safe_fields, unspoken

PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus", "ActiveEnterTimestamp",
    "FragmentPath", "DropInPaths", "ControlGroup", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "CPUWeight",
    "MemoryCurrent", "MemoryHigh", "MemoryMax", "TasksCurrent", "TasksMax", "OOMScoreAdjust",
)  # fmt: skip
"""What is asked of a unit: nothing that shows its environment or its command line."""
_LEVEL = re.compile(r"\blevel=(error|warn)\b|\"level\": ?\"(error|warn)\"|\b(ERROR|CRITICAL)\b|\bTraceback\b")
_FIELDS = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_PID"


def states(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield what systemd says of each unit. Raises AbsentError."""
    for unit in watched(device.settings):
        asked = ["systemctl", "show", "--no-pager", unit, *(f"--property={name}" for name in PROPERTIES)]
        known = [line for line in device.run(asked).splitlines() if line.partition("=")[0] in PROPERTIES]
        yield f"systemd/{unit}.txt", "".join(f"{line}\n" for line in known)


def gather(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield each unit's last entries. Raises AbsentError at the end."""
    missing = []
    for unit in watched(device.settings):
        try:
            entries = read(device, unit)
        except AbsentError as error:
            missing.append(f"{unit}: {error}")
            continue
        yield f"journal/{unit}.log", "".join(f"{entry}\n" for entry in entries)
    if missing:
        raise AbsentError("; ".join(missing))


def read(device: DeviceAccess, unit: str) -> list[str]:
    """Return a unit's last entries as lines: time, priority, process, message. Raises AbsentError."""
    output = device.run(
        ["journalctl", "--no-pager", "--quiet", f"--unit={unit}", f"--since={device.since}",
         f"--lines={device.lines}", "--output=json", "--all", f"--output-fields={_FIELDS}"]
    )  # fmt: skip
    lines = []
    for record in output.splitlines():
        try:
            line = _line(msgspec.json.decode(record, type=dict[str, Any]))
            lines.append(device.names.unaddressed(safe_fields(line)))
        except (msgspec.DecodeError, ValueError):
            lines.append(f"# not an entry, {len(record)} bytes")
    return lines


def _line(entry: dict[str, Any]) -> str:
    t = datetime.fromtimestamp(int(entry.get("__REALTIME_TIMESTAMP") or 0) / 1e6, timezone.utc)
    process = f"{entry.get('SYSLOG_IDENTIFIER') or '-'}[{entry.get('_PID') or '-'}]"
    message = entry.get("MESSAGE")
    if isinstance(message, list):
        # Bytes that are no text come as numbers.
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    said = "\n    ".join(unspoken(str(message or "")).splitlines())
    return f"{t:%Y-%m-%dT%H:%M:%S.%f}Z <{entry.get('PRIORITY', '-')}> {process}: {said}"


def errors(lines: list[str], most: int = 5) -> list[str]:
    """Return the last lines that tell of trouble: by their priority in the journal, or by the level they state."""
    found = [line for line in lines if re.search(r"^\S+ <[0-3]>", line) or _LEVEL.search(line)]
    return found[-most:]
