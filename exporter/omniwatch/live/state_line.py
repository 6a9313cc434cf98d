"""Say in one fact how the listeners are: who suffers what, since when, or what the sidecar cannot see. Pure."""

from __future__ import annotations

from typing import Any

from omniwatch.settings import Settings

Json = dict[str, Any]


def state_of(listeners: list[Json], sources: list[Json], now: float, settings: Settings) -> Json:
    """Return the state: `key` of its sentence, `level` (well, suffers, blind), `arguments` of the sentence, `since` in s or None.

    It speaks of what is measured here. Whether a person was told, only Alertmanager knows.
    """
    return (
        _blind(sources, now, settings.sidecar.lag_s)
        or _suffering(listeners, now, settings.early.silent_s)
        or _half_blind(sources)
        or _well(listeners)
    )


def _state(key: str, level: str, since: float | None = None, /, **arguments: Any) -> Json:
    return {"key": key, "level": level, "arguments": arguments, "since": since}


def _blind(sources: list[Json], now: float, lag_s: float) -> Json | None:
    if not any(source["up"] for source in sources):
        lost = next((source for source in sources if source["blind"]), None)
        if lost is not None:
            return _state("blind", "blind", lost["last_t"] or None, source=lost["name"], why=lost["error"])
        return _state("waiting", "blind", source=", ".join(source["name"] for source in sources))
    latest_s = max(source["lag_s"] for source in sources)
    if latest_s > lag_s:
        return _state("behind", "blind", now - latest_s, seconds=round(latest_s))
    return None


def _half_blind(sources: list[Json]) -> Json | None:
    for source in sources:
        if source["blind"]:
            since_t = source["last_t"] or None
            return _state("half_blind", "blind", since_t, source=source["name"], why=source["error"])
    return None


def _suffering(listeners: list[Json], now: float, silent_s: float) -> Json | None:
    fires = _by_rule(listeners, "firing")
    if fires:
        return fires
    for row in listeners:
        if row["suffers"] is not None:
            alike = sorted(other["slot"] for other in listeners if other["suffers"] == row["suffers"])
            return _state("suffers", "suffers", row["turn_t"], slots=alike, **row["suffers"])
    silent = {row["slot"]: row["silent_s"] for row in listeners if row["silent_s"] >= silent_s}
    if silent:
        longest_s = max(silent.values())
        return _state("silent", "suffers", now - longest_s, slots=sorted(silent), seconds=round(longest_s))
    return _by_rule(listeners, "pending")


def _by_rule(listeners: list[Json], state: str) -> Json | None:
    """Return the rule that has been in this state for longest, and the slots whose series are in it."""
    found = [
        (since_t, rule)
        for row in listeners
        for rule, since_t in row["rules_since"].items()
        if row["rules"][rule] == state
    ]
    if not found:
        return None
    since_t, rule = min(found)
    slots = sorted(row["slot"] for row in listeners if row["rules"].get(rule) == state)
    return _state(state, "suffers", since_t, rule=rule, slots=slots)


def _well(listeners: list[Json]) -> Json:
    away = sorted(row["slot"] for row in listeners if row["state"] == "away")
    if away:
        return _state("away", "well", slots=away)
    return _state("well", "well", count=len(listeners)) if listeners else _state("idle", "well")
