"""Settings that are no more, by their path, and what to set in their place."""

from __future__ import annotations

_AHEAD = "DriftAhead has early.eta_ticket_s and early.eta_ticket_share"
_THROTTLED = "CPUThrottling is a ticket, see device.throttled_ticket_share"
_SILENT = "StreamSilent has early.silent_s and early.silent_for_s"
_DASHBOARD = "no alert watches this, its panel is still there"

REMOVED = {
    "early.eta_page_s": _AHEAD,
    "early.eta_page_for_s": _AHEAD,
    "early.eta_page_share": _AHEAD,
    "early.eta_ticket_for_s": "set early.ahead_for_s",
    "early.lead_for_s": "set early.ahead_for_s",
    "model_server.mute_s": _SILENT,
    "model_server.mute_for_s": _SILENT,
    "model_server.kv_cache_for_s": "set model_server.overloaded_for_s",
    "sidecar.lag_for_s": "set sidecar.impaired_for_s",
    "resumption.replay_share": _DASHBOARD,
    "resumption.realigns": _DASHBOARD,
    "resumption.realign_window_s": _DASHBOARD,
    "resumption.corrupt": "set early.corrupt",
    "resumption.corrupt_window_s": "set early.corrupt_window_s",
    "device.throttled_page_share": _THROTTLED,
    "device.throttled_page_window_s": _THROTTLED,
    "device.hot_for_s": "set device.hardware_for_s",
    "device.blind_for_s": "set sidecar.blind_for_s",
    "device.signals_for_s": "set sidecar.impaired_for_s",
}
"""What the settings' error says of each."""
