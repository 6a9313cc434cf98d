"""Run the probe continuously: rounds of turns at an interval, with the results as metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omniwatch.desk.probe import OUTCOMES, Client, Limits
from omniwatch.desk.probe.reporter import Reporter
from omniwatch.desk.probe.rounds import converse
from omniwatch.settings.histograms import RTT_EDGES
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)

UNDERRUN_EDGES = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Blackbox:
    """Rounds of `turns` turns against one server, and their metrics in `registry`."""

    def __init__(
        self,
        open_client: Callable[[], Client],
        turns: int,
        limits: Limits,
        registry: CollectorRegistry,
        reporter: Reporter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_client = open_client
        self._turns = turns
        self._limits = limits
        self._registry = registry
        self._reporter = reporter
        self._clock = clock
        self._ended: Gauge | None = None
        self._seldom = LogThrottle(time.monotonic)
        self._success: Gauge | None = None
        self._drift: Gauge | None = None
        self._turns_total = Counter(
            "omni_probe_turns", "Turns of the probe, by how they went.", ["outcome"], registry=registry
        )
        for outcome in OUTCOMES:
            self._turns_total.labels(outcome)
        self._first_audio = Histogram(
            "omni_probe_first_audio_seconds",
            "Text sent to first speech received, on the probe's clock.",
            buckets=RTT_EDGES,
            registry=registry,
        )
        self._underrun = Histogram(
            "omni_probe_underrun_seconds",
            "Silence within a turn that its listener heard, of turns spoken to their end.",
            buckets=UNDERRUN_EDGES,
            registry=registry,
        )

    def run(self, interval_s: float, stop: threading.Event) -> None:
        """Begin a round every `interval_s` seconds, or when the last one is over if it took longer, until `stop`."""
        while not stop.is_set():
            began = time.monotonic()
            try:
                self.round()
            except Exception:
                # A check that stands for months must not end by what no test has thought of.
                log.exception("a round failed")
                self._gauge_success().set(0.0)
            self._gauge_ended().set(self._clock())
            stop.wait(max(0.0, began + interval_s - time.monotonic()))

    def round(self) -> None:
        """Have one round of turns."""
        problems = 0
        for turn in converse(self._open_client(), self._turns):
            heard = turn.heard
            self._turns_total.labels(turn.outcome).inc()
            if heard.rtt_ms is not None:
                self._first_audio.observe(heard.rtt_ms / 1000.0)
            if turn.outcome == "ok":
                self._underrun.observe(heard.underrun_ms / 1000.0)
                if heard.drift_ms is not None:
                    self._gauge_drift().set(heard.drift_ms / 1000.0)
            for line in self._limits.exceeded(turn):
                problems += 1
                log.warning("a turn was not good", extra={"fields": {"problem": line}})
        self._gauge_success().set(float(problems == 0))
        if self._reporter is not None and self._reporter.error is not None and self._seldom("report"):
            log.warning(
                "a turn's round trip was not reported to the tap",
                extra={"fields": {"error": self._reporter.error}},
            )

    # These are made when there is something to say: before, an absent series is the truth, and 0 is not.
    def _gauge_success(self) -> Gauge:
        if self._success is None:
            text = "Whether every turn of the last round was spoken to its end and within the limits."
            self._success = Gauge("omni_probe_success", text, registry=self._registry)
        return self._success

    def _gauge_ended(self) -> Gauge:
        if self._ended is None:
            text = "When the last round ended, well or not."
            self._ended = Gauge("omni_probe_last_round_timestamp_seconds", text, registry=self._registry)
        return self._ended

    def _gauge_drift(self) -> Gauge:
        if self._drift is None:
            text = "The last turn's drift at its worst; negative where the voice lags."
            self._drift = Gauge("omni_probe_drift_seconds", text, registry=self._registry)
        return self._drift
