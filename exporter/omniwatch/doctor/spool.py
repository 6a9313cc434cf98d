"""Read the newest events of the spool: only fields of the contract, clients replaced by pseudonyms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from omniwatch import events
from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.doctor.pseudonyms import CLIENT, Pseudonyms
from omniwatch.sources.spec import path_of

NAMED = {"stream": "stream", "peer": CLIENT, "w": "writer", "turn": "turn", "frame_id": "frame"}
"""Fields that may hold an id of somebody, and what it is called instead: an id is as good as a key."""
WORD = re.compile(r"[a-z_]{1,24}")


def gather(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield the last lines of each file that is followed, written anew by the contract: nothing else passes."""
    missing = []
    files = list(_files(device))
    for number, path in enumerate(files):
        try:
            lines = device.last_lines(path)
        except AbsentError as error:
            missing.append(str(error))
            continue
        yield (
            f"events/{number}-{path.name}",
            "".join(f"{pseudonymised(line, device.names)}\n" for line in lines),
        )
    if not files:
        missing.append(f"no event file of {', '.join(device.settings.sources)} is there")
    if missing:
        raise AbsentError("; ".join(missing))


def _files(device: DeviceAccess) -> Iterator[Path]:
    for source in device.settings.sources:
        pattern = path_of(source)
        if pattern is None:
            continue
        yield from sorted(device.root.glob(pattern.lstrip("/")))


def pseudonymised(line: bytes, names: Pseudonyms) -> str:
    """Return an event's line with pseudonyms for its ids; of another line only its kind and length."""
    event = events.decode(line.rstrip(b"\n"))
    if isinstance(event, events.Invalid):
        return f"# no event ({event.reason}), {len(line)} bytes"
    if isinstance(event, events.Unknown):
        return f"# an event of another kind, {len(line)} bytes"
    fields: dict[str, Any] = msgspec.to_builtins(event)
    for name, value in fields.items():
        if name in NAMED and isinstance(value, str):
            fields[name] = names(NAMED[name], value)
        elif isinstance(value, str) and not WORD.fullmatch(value):
            fields[name] = "<other>"
    return msgspec.json.encode(fields).decode()
