"""The thresholds of the alerts beyond the two of the contract, one group a rules file; settings.py holds them together.

A `_for_s` is how long a condition must hold, a `_window_s` the time that counters are looked at over.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[int, Meta(ge=1)]
Hold = Annotated[int, Meta(ge=0)]


class Early(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Warnings before the page, and what the page's gauges do not show (alerts/early.rules.yaml)."""

    eta_page_s: Positive = 120
    eta_page_for_s: Hold = 15
    """At its present slope the drift reaches the page threshold within this time."""
    eta_page_share: Share = 0.5
    """Said only once the drift has come so far on its way to the page threshold."""
    eta_ticket_s: Positive = 600
    eta_ticket_for_s: Hold = 60
    eta_ticket_share: Share = 0.35
    lead_ms: Positive = 45
    lead_for_s: Hold = 15
    """A voice that leads: people notice from here on (ITU-R BT.1359, EBU R37); a voice that lags, from 125 ms."""
    silent_s: Positive = 5
    silent_for_s: Hold = 5
    """A listener waits for speech that is due."""
    loss_runs: Count = 3
    loss_window_s: Seconds = 300
    """So many runs of at least `frames.rtx_thr` lost frames."""


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The red line as an objective: how fast its budget of late answers burns (alerts/objectives.rules.yaml)."""

    in_time_share: Share = 0.95
    """This share of answers should come within `alerts.red_line_ms`."""
    answers_min: Count = 30
    """Of fewer answers in the long window nothing is concluded."""
    page_burn: Positive = 14.4
    page_window_s: Seconds = 3600
    page_short_s: Seconds = 300
    """Page when the budget burns so many times too fast, over the long window and still over the short one."""
    ticket_burn: Positive = 6
    ticket_window_s: Seconds = 21_600
    ticket_short_s: Seconds = 1800

    def __post_init__(self) -> None:
        """Refuse a burn that no share of late answers can reach."""
        most = 1 / (1 - self.in_time_share)
        for name in ("page_burn", "ticket_burn"):
            if getattr(self, name) >= most:
                raise ValueError(
                    f"{name}: expected a number < {most:.3g}, all answers late with an in_time_share of {self.in_time_share:g}, "
                    f"got {getattr(self, name):g}"
                )


class ModelServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model server says of itself (alerts/server.rules.yaml)."""

    down_for_s: Hold = 15
    mute_s: Seconds = 15
    mute_for_s: Hold = 15
    """It answers, yet a listener has waited so long and no speech at all comes out."""
    queue_mean_s: Positive = 0.25
    queue_window_s: Seconds = 300
    """A request's mean wait before its first stage takes it up."""
    kv_cache_share: Share = 0.9
    kv_cache_for_s: Hold = 60
    slow_share: Share = 0.1
    slow_min: Count = 3
    slow_window_s: Seconds = 600
    """Answers generated more slowly than they are spoken (RTF over 1): their share, of at least so many."""
    underrun_share: Share = 0.1
    underrun_min: Count = 3
    underrun_window_s: Seconds = 600
    """Chat answers in which the listener starved for more than 100 ms in all, by the server's own count."""
    no_audio: Count = 1
    no_audio_window_s: Seconds = 600
    """Answers with status 200 and no speech in them."""


class SidecarAlerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How well the sidecar sees (alerts/sidecar.rules.yaml)."""

    down_for_s: Hold = 15
    lag_s: Positive = 10
    lag_for_s: Hold = 15
    free_kib: Positive = 256
    """Less room than this where the events are written: the server's next event may find none."""
    lost: Count = 1
    lost_window_s: Seconds = 300
    """Events that were numbered by their writer and never came."""
    invalid: Count = 1
    invalid_window_s: Seconds = 300
    """Lines that are no event."""


class Resumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How well clients come back after a cut (alerts/resumption.rules.yaml)."""

    success_share: Share = 0.98
    resumes_min: Count = 5
    """Of fewer resumes in the window nothing is concluded."""
    extra_mean_ms: Positive = 100
    """How much later than without the cut the next frame may play, on average."""
    window_s: Seconds = 600
    replay_share: Share = 0.5
    """Frames sent again, as a share of the frames sent."""
    corrupt: Count = 1
    corrupt_window_s: Seconds = 300
    """Frames whose checksum or codes cannot be right."""
    realigns: Count = 3
    realign_window_s: Seconds = 600
    """Times that audio was forced back onto the picture."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the device does to the model server (alerts/device.rules.yaml)."""

    throttled_page_share: Share = 0.05
    throttled_page_window_s: Seconds = 300
    throttled_ticket_share: Share = 0.01
    throttled_ticket_window_s: Seconds = 600
    throttled_periods_min: Count = 100
    """The server was stopped by its CPU quota in this share of the quota's periods, of at least so many."""
    quota_for_s: Hold = 60
    """The kernel applies another quota than systemd was told, or none."""
    failed_for_s: Hold = 0
    restarts: Count = 3
    restarts_window_s: Seconds = 1800
    restarts_short_s: Seconds = 600
    """systemd gave the server up; or had to start it again so often, the last time no longer ago than the short time."""
    hot_for_s: Hold = 60
    overcurrents: Count = 1
    overcurrents_window_s: Seconds = 300
    """Throttled by the kernel for its heat; by the hardware for its current, so often."""
    memory_share: Share = 0.05
    memory_for_s: Hold = 15
    """Less than this share of the memory that CPUs and GPU have together can still be had."""
    blind_for_s: Hold = 60
    """Events could be read at some time in this long, and now they cannot."""
    signals_for_s: Hold = 60
    """A reader of the device's own signals fails."""


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
