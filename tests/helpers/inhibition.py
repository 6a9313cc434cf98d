"""The scheme of silences: which alert explains which others on its own device. Grouping does the rest: one fault is one incident."""

from __future__ import annotations

CAUSES = {
    "ModelServerDown": ("unreachable", "loading", "failed", "never-up", "crash-loop", "absent"),
    "SidecarBlind": ("down", "absent", "unreadable", "spool-full", "no-tap", "idle-tap"),
}
"""The values of the label `cause` of alerts that silence others."""
DEAD = CAUSES["ModelServerDown"][:3]
"""Of ModelServerDown each of these silences all of the fault `speech`, and the tickets of the fault `server`."""
SIGHTLESS = CAUSES["SidecarBlind"][:2]
"""Of SidecarBlind each silences all of the fault `speech`; the other causes only on a device with one source."""
EXPLAINS = {
    "CodecDrift": {"DriftAhead", "ModelServerOverloaded"},
    "TurnsOutOfSync": {"DriftAhead", "ModelServerOverloaded"},
    "TokenRTT": {"RedLineErosion", "ModelServerOverloaded"},
    "RedLineBurn": {"RedLineErosion", "ModelServerOverloaded"},
    "SidecarBlind": {"SidecarImpaired"},
}
"""Pages that explain tickets of their own cause."""


def silenced(source: str, cause: str, target: str, severity: str, fault: str, *, sources: int = 1) -> bool:
    """Return whether an alert silences another one of this severity and fault on its device, which has so many sources."""
    if source == "ModelServerDown":
        return cause in DEAD and (fault == "speech" or (fault == "server" and severity == "ticket"))
    if source == "SidecarBlind":
        if fault == "speech":
            return sources == 1 or cause in SIGHTLESS
        if cause == "spool-full" or "tap" in cause:
            return False
    return severity == "ticket" and target in EXPLAINS.get(source, ())
