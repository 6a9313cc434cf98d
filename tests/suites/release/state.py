"""What a sidecar keeps over a change of versions: what it counted of its events, and both curves; and files of a format to come."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from array import array
from pathlib import Path
from typing import Any

import msgspec

from helpers.paths import CLONE
from omniwatch.live import history
from omniwatch.sidecar import checkpoint

STARTS_OVER = {
    "checkpoint": "checkpoint cannot be used, starting over",
    "history": "history cannot be read, it begins anew",
}
"""Each file of state that has a content, and what is logged of one that the program does not know."""
VERSION_AT = len(b"omniwatch")
"""Where a file of state says its format: two bytes after its first word."""
DRIFT_MS = -90.0


def events() -> bytes:
    """Events of a scenario, all at once."""
    command = ["simulate", "--scenario", "reconnect-jump", "--speed", "max", "--start-time", "0"]
    return subprocess.run(
        [sys.executable, "-m", "omniwatch", *command], capture_output=True, check=True, cwd=CLONE
    ).stdout


def counters(found: dict[str, float]) -> dict[str, float]:
    """What is counted of events."""
    return {
        name: value
        for name, value in found.items()
        if name.startswith(("omniwatch_events_total", "omni_audio", "omni_turns"))
    }


def counted(found: dict[str, float], spool: bytes) -> dict[str, float]:
    """What was counted once every event was read; nothing before."""
    own = counters(found)
    done = sum(value for name, value in own.items() if name.startswith("omniwatch_events_total"))
    return own if done == len(spool.splitlines()) else {}


def put_history(folder: Path) -> None:
    """Put curves of the last quarter of an hour beside a checkpoint, as the account that owns the folder."""
    drift, rtt = (array("f", [value]) * history.SECONDS for value in (DRIFT_MS, 300.0))
    kept = history.Kept(history.VERSION, time.time(), {0: (drift.tobytes(), rtt.tobytes())})
    file = folder / "history"
    file.unlink(missing_ok=True)
    checkpoint.save(file, zlib.compress(msgspec.msgpack.encode(kept)))
    os.chown(file, folder.stat().st_uid, folder.stat().st_gid)


def has_history(feed: dict[str, Any]) -> bool:
    """Whether a sidecar's /live.json shows those curves."""
    columns = feed["history"]["columns"].get("0", {"drift": []})
    return DRIFT_MS in columns["drift"]


def make_later(folder: Path) -> None:
    """Give each file the number of the next format, as a later program would have written it."""
    later = (checkpoint.VERSION + 1).to_bytes(2, "big")
    for name in STARTS_OVER:
        file = folder / name
        content = file.read_bytes()
        file.write_bytes(content[:VERSION_AT] + later + content[VERSION_AT + 2 :])


def refused(log: str) -> bool:
    """Whether each of those files is said in a log, with both formats."""
    later, own = checkpoint.VERSION + 1, checkpoint.VERSION
    return all(
        any(
            said in line and f"version {later}, this program reads version {own}" in line
            for line in log.splitlines()
        )
        for said in STARTS_OVER.values()
    )


def is_own(folder: Path) -> bool:
    """Whether the checkpoint is of this program's format again."""
    return (folder / "checkpoint").read_bytes()[VERSION_AT + 1] == checkpoint.VERSION
