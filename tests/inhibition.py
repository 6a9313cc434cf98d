"""Which alert silences which, written down a second time, for tests to hold the rendered configuration against."""

from __future__ import annotations

SPEECH = {
    *(
        "CodecDrift",
        "TokenRTT",
        "TurnsOutOfSync",
        "DriftImminent",
        "DriftAhead",
        "VoiceLeads",
        "StreamSilent",
    ),
    *(
        "FrameLossRuns",
        "RedLineBurn",
        "RedLineErosion",
        "TurnsWithoutSpeech",
        "ModelServerMute",
        "ResumeFailing",
    ),
    *("ResumeSlow", "ReplayStorm", "CorruptFrames", "RealignStorm"),
}
"""What the sidecar measures of speech."""
SERVER = {"ModelServerQueue", "KvCacheFull", "SlowerThanSpeech", "ChatUnderruns"}
"""What the model server says of itself."""
DEVICE = {
    *(
        "ModelServerFailed",
        "ModelServerCrashLooping",
        "CPUThrottlingSevere",
        "CPUThrottling",
        "CPUQuotaNotApplied",
    ),
    *("ThermalThrottling", "OverCurrentThrottling", "MemoryNearlyGone", "DeviceSignalsLost"),
}
"""What the sidecar reads of the machine."""
SIGHT = {"SpoolFull", "SidecarBlind", "SourceLag", "EventsLost", "EventsInvalid", "SettingsNotReloaded"}
"""How well the sidecar sees."""
FLEET = {
    *("DeviceSilent", "DeviceClockSkew", "UplinkBacklog"),
    *("FleetInBreach", "ReleaseRegression", "SiteErrorBudget"),
}
"""What the centre of a fleet says, which no device reads."""
ALONE = {"Watchdog", "SidecarDown", "ModelServerDown"}
STREAM_PAIRS = {
    ("CodecDrift", "DriftImminent"),
    ("CodecDrift", "DriftAhead"),
    ("CodecDrift", "VoiceLeads"),
    ("DriftImminent", "DriftAhead"),
    ("StreamSilent", "TokenRTT"),
}
"""These silence each other on the same stream only."""
SOURCE_PAIRS = {("SpoolFull", "SidecarBlind"), ("SpoolFull", "SourceLag"), ("SidecarBlind", "SourceLag")}
"""These silence each other for the same source only."""
SILENCES = {
    "ModelServerDown": SPEECH | SERVER,
    "ModelServerFailed": SPEECH | SERVER | {"ModelServerDown", "ModelServerCrashLooping"},
    "ModelServerCrashLooping": {"ModelServerDown"},
    "SidecarDown": SPEECH | SIGHT | DEVICE,
    "SpoolFull": SPEECH | {"SidecarBlind", "SourceLag"},
    "SidecarBlind": SPEECH | {"SourceLag"},
    "ModelServerMute": {
        *("TokenRTT", "TurnsOutOfSync", "RedLineBurn", "RedLineErosion", "TurnsWithoutSpeech"),
        "ModelServerQueue",
    },
    "CodecDrift": {"SlowerThanSpeech", "ChatUnderruns", "RealignStorm", "DriftImminent", "DriftAhead", "VoiceLeads"},
    "TurnsOutOfSync": {"SlowerThanSpeech", "ChatUnderruns", "RealignStorm"},
    "DriftImminent": {"DriftAhead"},
    "StreamSilent": {"TokenRTT", "ModelServerMute"},
    "TokenRTT": {"RedLineBurn", "RedLineErosion", "ModelServerQueue"},
    "RedLineBurn": {"RedLineErosion", "ModelServerQueue"},
    "CPUThrottlingSevere": {"CPUThrottling"},
}  # fmt: skip
