"""The series that a device sends to its fleet's centre. Their names begin with `uplink:`; no others leave it.

How each is made from the device's own series is in alerts/uplink.rules.yaml.j2. Every one of them also carries the labels
`site`, `device`, `model` and `release`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

IDENTITY = ("site", "device", "model", "release")
"""The labels that every series has at the centre."""
PREFIX = "uplink:"
"""The allow-list: a name that begins so is sent up."""


class Uplinked(NamedTuple):
    """A family: a gauge is the worst of one uplink interval, a counter grows as the device's own does."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = {}
    """Further labels, with the values they have on a device that is well and speaks."""

    @property
    def series(self) -> int:
        """How many series it has on such a device."""
        count = 1
        for values in self.labels.values():
            count *= len(values)
        return count


FAMILIES: tuple[Uplinked, ...] = (
    Uplinked("uplink:time_seconds", "gauge", "The device's clock: when it was heard last, and how far it is off."),
    Uplinked("uplink:build_info", "gauge", "Always 1; the sidecar that runs.", {"version": ("0.1.0",)}),
    Uplinked(
        "uplink:up:min", "gauge", "Whether a job could be scraped all the time.", {"job": ("omniwatch", "model_server")}
    ),
    Uplinked("uplink:source_up:min", "gauge", "Whether every source of events could be read all the time."),
    Uplinked("uplink:streams:max", "gauge", "Live streams."),
    Uplinked("uplink:drift_abs_ms:max", "gauge", "Size of the drift, the worst stream's, in milliseconds."),
    Uplinked("uplink:rtt_ms:max", "gauge", "Slowest last answer of a stream, in milliseconds."),
    Uplinked("uplink:rtt_ms:p95", "gauge", "95 % of the answers of the last five minutes came within so many milliseconds."),
    Uplinked("uplink:silent_seconds:max", "gauge", "Longest that a listener waited for speech that was due."),
    Uplinked("uplink:turns_total", "counter", "Turns whose playback is over."),
    Uplinked("uplink:turns_in_sync_total", "counter", "Of them, those whose worst drift was within the page's threshold."),
    Uplinked("uplink:turns_judged_total", "counter", "Turns that were over and could have been bad."),
    Uplinked(
        "uplink:turns_bad_total",
        "counter",
        "Of them, those that were bad, by symptom and cause: the pairs, eight at most, that grew in the last hour.",
        {"symptom": (), "cause": ()},
    ),
    Uplinked("uplink:answers_total", "counter", "Answers."),
    Uplinked("uplink:answers_in_time_total", "counter", "Of them, those within the red line."),
    Uplinked("uplink:resumes_total", "counter", "Clients that came back."),
    Uplinked("uplink:resumes_well_total", "counter", "Of them, those who got all that they had not heard."),
    Uplinked("uplink:audio_seconds_total", "counter", "Speech handed to the network."),
    Uplinked("uplink:underrun_seconds_total", "counter", "Time in which listeners had nothing to hear in a turn."),
    Uplinked("uplink:frames_total", "counter", "Codec frames handed to the network."),
    Uplinked("uplink:frames_lost_total", "counter", "Codec frames whose id was skipped."),
    Uplinked("uplink:events_lost_total", "counter", "Events that the sidecar never read."),
    Uplinked("uplink:cpu_throttled_periods_total", "counter", "Periods in which a CPU quota stopped the model server."),
    Uplinked("uplink:gpu_load_ratio:avg", "gauge", "Share of time the GPU was busy."),
    Uplinked("uplink:temperature_celsius:max", "gauge", "Hottest zone of the device."),
    Uplinked("uplink:memory_available_ratio:min", "gauge", "Share of the device's memory that can still be had."),
    Uplinked("uplink:queue_bytes:max", "gauge", "What waits in vmagent's queue."),
    Uplinked("uplink:queue_behind_seconds:max", "gauge", "Seconds from the newest sample that Prometheus' agent has sent to the newest that it has."),
    Uplinked("uplink:queue_dropped_total", "counter", "What the queue had to drop: bytes (vmagent) or samples (Prometheus)."),
    Uplinked(
        "uplink:alert_firing",
        "gauge",
        "The device's time while a page or ticket fires there, with the alert's own labels.",
        {"alertname": (), "severity": ()},
    ),
)  # fmt: skip
