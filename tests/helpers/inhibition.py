"""The scheme of silences: which alert explains which others on its own device. Grouping does the rest: one fault is one incident."""

from __future__ import annotations

DEAD = {"ModelServerDown", "ModelServerFailed"}
"""Each silences all of the fault `speech`, and the tickets of the fault `server`."""
SIGHTLESS = {"SidecarDown", "SidecarBlind", "SpoolFull"}
"""Each silences all of the fault `speech` on a device with one source: what still seems measured is old."""
_DRIFT = {"DriftAhead", "VoiceLeads", "RealignStorm", "SlowerThanSpeech", "ChatUnderruns"}
_LATE = {"RedLineErosion", "ModelServerQueue"}
_BLIND = {"SourceLag", "EventsLost", "EventsInvalid", "SettingsNotReloaded"}
EXPLAINS = {
    "CodecDrift": _DRIFT,
    "TurnsOutOfSync": _DRIFT,
    "TokenRTT": _LATE,
    "RedLineBurn": _LATE,
    "SidecarDown": _BLIND,
    "SidecarBlind": _BLIND,
    "SpoolFull": {"SourceLag"},
    "CPUThrottlingSevere": {"CPUThrottling"},
}
"""Pages that explain tickets of their own cause."""


def silenced(source: str, target: str, severity: str, fault: str) -> bool:
    """Return whether an alert silences another one of this severity and fault on its device."""
    if source in DEAD and (fault == "speech" or (fault == "server" and severity == "ticket")):
        return True
    if source in SIGHTLESS and fault == "speech":
        return True
    return severity == "ticket" and target in EXPLAINS.get(source, ())
