"""The thresholds of all alerts but the contract's two, one group a rules file.

A `_for_s` is how long a condition must hold, a `_window_s` the time that counters are looked at over.
"""

from __future__ import annotations

import msgspec

from omniwatch.settings.kinds import Count, Hold, Positive, Seconds, Share


class Early(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Warnings before the page, and faults that the two curves do not show (alerts/early.rules.yaml)."""

    eta_ticket_s: Positive = 600
    """`DriftAhead` files a ticket when the drift, at its present slope, reaches the page threshold within
    this time."""
    eta_ticket_share: Share = 0.35
    """Part of the way to the page threshold that the drift must have come before its slope counts."""
    lead_ms: Positive = 45
    """Lead of the voice from which on people notice it (ITU-R BT.1359, EBU R37), past which `DriftAhead` fires, too; a
    lag is noticed from 125 ms on."""
    ahead_for_s: Hold = 60
    """Time that forecast, or that lead, must hold before `DriftAhead` fires."""
    silent_s: Positive = 5
    """Time a listener waits for speech that is due before `StreamSilent` counts it."""
    silent_for_s: Hold = 5
    """Time that wait must last on before `StreamSilent` pages."""
    loss_runs: Count = 3
    """Runs of at least `frames.rtx_thr` lost frames from which on `FramesDamaged` fires."""
    loss_window_s: Seconds = 3600
    """Time over which those runs are counted."""
    corrupt: Count = 1
    """Frames with an impossible checksum or code from which on `FramesDamaged` fires."""
    corrupt_window_s: Seconds = 300
    """Time over which corrupt frames are counted."""


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The red line as an objective: how fast its budget of late answers burns (alerts/objectives.rules.yaml)."""

    in_time_share: Share = 0.95
    """Share of answers that should come within `alerts.red_line_ms`."""
    answers_min: Count = 30
    """Answers in the long window below which nothing is concluded."""
    page_burn: Positive = 6
    """Speed at which the budget of late answers burns, as a multiple of the sustainable one, from which on
    `RedLineBurn` pages."""
    page_window_s: Seconds = 3600
    """Long window of `RedLineBurn`."""
    page_short_s: Seconds = 300
    """Short window of `RedLineBurn`: the budget must still burn there."""
    ticket_burn: Positive = 2
    """The same multiple, from which on `RedLineErosion` files a ticket."""
    ticket_window_s: Seconds = 21_600
    """Long window of `RedLineErosion`."""
    ticket_short_s: Seconds = 1800
    """Short window of `RedLineErosion`."""

    def __post_init__(self) -> None:
        """Refuse a burn that no share of late answers can reach."""
        most = 1 / (1 - self.in_time_share)
        for name in ("page_burn", "ticket_burn"):
            if getattr(self, name) >= most:
                raise ValueError(
                    f"{name}: expected a number < {most:.3g}, all answers late with an in_time_share of {self.in_time_share:g}, "
                    f"got {getattr(self, name):g}"
                )


class Rare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When `TurnsOutOfSync` and `RedLineBurn` page on rare traffic (alerts/objectives.rules.yaml)."""

    bad: Count = 3
    """Turns out of sync, or late answers, below which nothing is concluded over `window_s`."""
    share: Share = 0.5
    """Share of turns or answers from which on they page over `window_s`."""
    window_s: Seconds = 1800
    """The shorter time."""
    long_bad: Count = 5
    """Turns out of sync, or late answers, below which nothing is concluded over `long_window_s`."""
    long_share: Share = 0.3
    """Share of turns or answers from which on they page over `long_window_s`."""
    long_window_s: Seconds = 21_600
    """The longer time."""
    short_s: Seconds = 3600
    """Time without a turn out of sync, or a late answer, after which those of `long_window_s` no longer count: it is
    mended."""


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tickets of turns that were bad by what lies outside the device: the network, the listener's end, cuts (alerts/network.rules.yaml)."""

    share: Share = 0.2
    """Share of those turns past which `NetworkPoor` fires, and `SiteNetworkPoor` of all devices of a site."""
    turns_min: Count = 10
    """Turns below which nothing is concluded."""
    window_s: Seconds = 3600
    """Time over which turns are counted."""


class ModelServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Alerts from the model server's own metrics (alerts/server.rules.yaml)."""

    down_for_s: Hold = 15
    """Time the model server's `/metrics` must stay unreachable before `ModelServerDown` pages."""
    load_s: Seconds = 300
    """Time from its start in which the model server may load its model before `ModelServerDown` pages that it is not up."""
    stopped_for_s: Hold = 3600
    """Time the unit must stay stopped, as by `systemctl stop`, before `ModelServerStopped` files a ticket."""
    failed_share: Share = 0.5
    """Share of turns, or of requests by the server's own count, that fail from which on `AnswersFailing` pages."""
    failed_min: Count = 3
    """Failed ones below which `AnswersFailing` concludes nothing."""
    failed_window_s: Seconds = 300
    """Short window of `AnswersFailing`, for a busy server."""
    failed_slow_window_s: Seconds = 1800
    """Long window of `AnswersFailing`, for one that is asked rarely."""
    queue_mean_s: Positive = 0.25
    """Mean wait of a request before its first stage starts, past which `ModelServerOverloaded` fires."""
    queue_window_s: Seconds = 300
    """Time over which that wait is averaged."""
    kv_cache_share: Share = 0.9
    """Share of a stage's KV cache in use past which `ModelServerOverloaded` fires."""
    slow_share: Share = 0.1
    """Share of answers generated more slowly than they are spoken (real-time factor over 1) past which
    `ModelServerOverloaded` fires."""
    slow_min: Count = 3
    """Answers below which nothing is concluded from their real-time factors."""
    slow_window_s: Seconds = 600
    """Time over which answers slower than speech are counted."""
    underrun_share: Share = 0.1
    """Share of chat answers with more than 100 ms of underrun, by the server's own count, past which
    `ModelServerOverloaded` fires."""
    underrun_min: Count = 3
    """Chat answers below which nothing is concluded from their underrun."""
    underrun_window_s: Seconds = 600
    """Time over which chat answers with underrun are counted."""
    overloaded_for_s: Hold = 60
    """Time one of these must hold before `ModelServerOverloaded` fires: shorter than their windows."""
    no_audio: Count = 1
    """Answers with status 200 and no speech from which on `TurnsWithoutSpeech` fires."""
    no_audio_window_s: Seconds = 600
    """Time over which answers without speech are counted."""
    asleep_for_s: Hold = 60
    """Time requests must wait while no stage makes a token before `ModelServerAsleep` fires."""

    def __post_init__(self) -> None:
        """Refuse a wait that outlasts what it waits for."""
        _shorter(self, "overloaded_for_s", "queue_window_s", "slow_window_s", "underrun_window_s")


class SidecarAlerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Alerts on the monitoring itself: sidecar, sources, events (alerts/sidecar.rules.yaml)."""

    down_for_s: Hold = 15
    """Time the sidecar must stay unreachable before `SidecarBlind` pages."""
    blind_for_s: Hold = 60
    """Time a source that was readable must stay unreadable before `SidecarBlind` pages."""
    idle_answers: Count = 2
    """Answers with speech by the server's own count, none of them among the events, from which on `SidecarBlind` pages: the
    server runs without its tap."""
    idle_window_s: Seconds = 600
    """Time over which those answers are counted."""
    lag_s: Positive = 10
    """Age of the newest event read, with more to read, past which `SidecarImpaired` fires."""
    free_kib: Positive = 256
    """Free space where the events are written below which `SidecarBlind` pages: the server's next event may find
    no room."""
    lost: Count = 1
    """Lost events (numbered by their writer, never read) from which on `SidecarImpaired` fires."""
    lost_window_s: Seconds = 300
    """Time over which lost events are counted."""
    invalid: Count = 1
    """Invalid lines from which on `SidecarImpaired` fires."""
    invalid_window_s: Seconds = 300
    """Time over which invalid lines are counted."""
    impaired_for_s: Hold = 60
    """Time that a lag, a loss or another fault of the sidecar must last before `SidecarImpaired` fires: shorter than the
    windows above."""

    def __post_init__(self) -> None:
        """Refuse a wait that outlasts what it waits for."""
        _shorter(self, "impaired_for_s", "lost_window_s", "invalid_window_s")


class Monitoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Alerts on what scrapes, judges and notifies (alerts/monitoring.rules.yaml)."""

    failures: Count = 3
    """Evaluations of rules that fail, or requests of Alertmanager to a receiver, within `window_s`, from which on
    `MonitoringFailing` counts them."""
    dropped_share: Share = 0.5
    """Share of Prometheus' notifications, within `window_s`, that no Alertmanager took, from which on it counts them."""
    window_s: Seconds = 300
    """Time over which failures and dropped notifications are counted."""
    lost: Count = 1
    """Samples or blocks that Prometheus could not write, or messages that the bridge to chat robots gave up, from which on
    `MonitoringFailing` counts them."""
    lost_window_s: Seconds = 3600
    """Time over which what was lost is counted."""
    failing_for_s: Hold = 600
    """Time that one of these must last before `MonitoringFailing` or `CertificateExpiring` fires: at least `window_s`,
    so that a restart is none, and shorter than `lost_window_s`."""
    certificate_days: Positive = 14
    """Days that a certificate has left, of those that are served or that the settings name, below which `CertificateExpiring` fires."""

    def __post_init__(self) -> None:
        """Refuse a wait that a single burst fills, or that outlasts what it waits for."""
        _shorter(self, "failing_for_s", "lost_window_s")
        if self.failing_for_s < self.window_s:
            raise ValueError(
                f"failing_for_s: expected a whole number >= {self.window_s}, window_s, got {self.failing_for_s}"
            )


class Resumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Alerts on clients that come back after a cut (alerts/resumption.rules.yaml)."""

    success_share: Share = 0.98
    """Share of successful resumes below which `ResumeFailing` fires."""
    resumes_min: Count = 5
    """Resumes in the window below which nothing is concluded."""
    extra_mean_ms: Positive = 100
    """Mean extra delay of the next frame after a resume past which `ResumeFailing` fires, too."""
    window_s: Seconds = 600
    """Time over which resumes are counted."""


class DeviceAlerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Alerts on what the device does to the model server (alerts/device.rules.yaml)."""

    throttled_ticket_share: Share = 0.01
    """Share of the quota's periods in which the server was stopped past which `CPUThrottling` fires."""
    throttled_ticket_window_s: Seconds = 600
    """Window of `CPUThrottling`: the share is counted over it, and the alert ends once it was within the limit for as
    long."""
    throttled_periods_min: Count = 100
    """Periods of the quota below which `CPUThrottling` concludes nothing."""
    quota_for_s: Hold = 60
    """Time the kernel must apply another quota than systemd was told before `CPUQuotaNotApplied` fires."""
    failed_for_s: Hold = 0
    """Time the model server's unit must stay failed before `ModelServerDown` pages."""
    restarts: Count = 3
    """Restarts from which on `ModelServerDown` pages."""
    restarts_window_s: Seconds = 1800
    """Time over which those restarts are counted."""
    restarts_short_s: Seconds = 600
    """Time within which the last of them must lie."""
    overcurrents: Count = 1
    """Over-current events of the hardware from which on `HardwareThrottling` fires."""
    overcurrents_window_s: Seconds = 300
    """Time over which over-current events are counted."""
    hardware_for_s: Hold = 60
    """Time that heat or over-current must throttle before `HardwareThrottling` fires: shorter than that window."""
    memory_share: Share = 0.05
    """Share of the memory of CPUs and GPU still available below which `MemoryNearlyGone` fires."""
    memory_for_s: Hold = 15
    """Time the memory must stay that scarce."""

    def __post_init__(self) -> None:
        """Refuse a wait that outlasts what it waits for."""
        _shorter(self, "hardware_for_s", "overcurrents_window_s")


def _shorter(thresholds: msgspec.Struct, wait: str, *windows: str) -> None:
    """Refuse a wait that is as long as a window: what was counted would be gone before the wait is over."""
    for window in windows:
        if getattr(thresholds, wait) >= getattr(thresholds, window):
            raise ValueError(
                f"{wait}: expected a whole number < {getattr(thresholds, window)}, {window}, got {getattr(thresholds, wait)}"
            )


def short_windows(group: str, thresholds: msgspec.Struct, shortest_s: int) -> str:
    """Return what is wrong with the first window that holds too few samples to count in; "" when all are long enough."""
    for name in thresholds.__struct_fields__:
        value = getattr(thresholds, name)
        if name.endswith(("window_s", "short_s")) and value < shortest_s:
            return (
                f"{group}.{name}: expected a whole number >= {shortest_s}, four scrapes and evaluations, "
                f"got {value}"
            )
    return ""
