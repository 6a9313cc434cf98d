"""What the tap says of a turn with the real server, and what the sidecar makes of it."""

from __future__ import annotations

import json
from typing import Any

from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.desk.child_process import ChildProcess, get
from suites.omni.server import Omni


def new_stream(omni: Omni, kind: str, before: set[str]) -> list[ev.AnyEvent]:
    """The events so far of the one stream that was not there before."""
    found = [events for name, events in omni.streams().items() if name not in before]
    assert len(found) <= 1
    if not found:
        return []
    assert isinstance(found[0][0], ev.StreamStart)
    assert found[0][0].kind == kind
    return found[0]


def finished(omni: Omni, kind: str, before: set[str]) -> tuple[list[ev.AnyEvent], ev.TurnEnd]:
    """The same, when its turn has ended; and how that ended."""

    def ended() -> bool:
        return any(isinstance(event, ev.TurnEnd) for event in new_stream(omni, kind, before))

    wait_until(ended, timeout=60, what="the turn ends")
    events = new_stream(omni, kind, before)
    (end,) = [event for event in events if isinstance(event, ev.TurnEnd)]
    return events, end


def spoken(events: list[ev.AnyEvent]) -> list[ev.Audio]:
    return [event for event in events if isinstance(event, ev.Audio)]


def followed(sidecar: ChildProcess, name: str) -> dict[str, Any]:
    """The sidecar's row of a stream that has spoken; empty while there is none."""
    rows = json.loads(get(sidecar.url + "/streams.json"))["streams"]
    found = [row for row in rows if row["id"] == name and row["drift_ms"] is not None and row["rtt_ms"]]
    return found[0] if found else {}
