"""Run the demonstration: a simulated fault, the threshold crossed, the rule firing, the page and its end."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from omniwatch.desk.demo.local_stack import Notice, Stack
from omniwatch.desk.simulation import Scenario
from omniwatch.events import Invalid, Unknown, decode

GRACE_S = 7.0
"""A page reaches a person within its rule's `for` plus this."""
PATIENCE_S = 60.0
"""How long after it is due a step of the timeline is waited for."""
LOOK_S = 0.1
Found = TypeVar("Found")


class Step(NamedTuple):
    """One line of the timeline: what happened, and when (seconds since the epoch)."""

    what: str
    t: float
    detail: str = ""


class DemoError(RuntimeError):
    """A step did not come in time."""


class Demo:
    """One scenario of `simulate` with an alert, run through a started stack in real time."""

    def __init__(
        self,
        stack: Stack,
        scenario: Scenario,
        seed: int = 1,
        waiting: Callable[[str], None] = lambda what: None,
    ) -> None:
        if scenario.alert is None or scenario.fault_at_s is None or scenario.mended_at_s is None:
            raise ValueError(f"{scenario.name}: no alert comes of it")
        self.alert = scenario.alert
        self._stack = stack
        self._scenario = scenario
        self._seed = seed
        self._waiting = waiting
        self._fault_t = self._mended_t = 0.0
        alerts = stack.settings.alerts
        drift, rtt = "omni_codec_drift_ms", "omni_token_rtt_ms"
        self._metric, self.expression, self.for_s = {
            "CodecDrift": (drift, f"abs({drift}) > {alerts.drift_page_ms}", alerts.drift_for_s),
            "TokenRTT": (rtt, f"{rtt} > {alerts.rtt_page_ms}", alerts.rtt_for_s),
        }[self.alert]
        self.page_after_s: float | None = None
        """Seconds from the fault, or from when it first showed if that was later, to the page, once it came."""

    def run(self) -> Iterator[Step]:
        """Start the simulation and yield the steps as they happen, in the order of their times.

        Raises DemoError when one does not come.
        """
        is_mended = False
        for step in self._observed():
            if not is_mended and step.t > self._mended_t > 0:
                yield Step("fault mended", self._mended_t)
                is_mended = True
            yield step

    def _observed(self) -> Iterator[Step]:
        self._stack.simulate("--scenario", self._scenario.name, "--seed", str(self._seed))
        began_t = self._await("the first event", self._first_event_t, time.time())
        self._fault_t = began_t + (self._scenario.fault_at_s or 0.0)
        self._mended_t = began_t + (self._scenario.mended_at_s or 0.0)
        yield Step("speech begins", began_t)
        self._await("the fault", lambda: time.time() >= self._fault_t or None, self._fault_t)
        yield Step("fault begins", self._fault_t, self._scenario.summary)
        crossed_t, value = self._await("the threshold to be crossed", self._crossed, self._fault_t)
        yield Step("threshold crossed", crossed_t, f"{self.expression}: {value:.0f} ms")
        yield Step(
            "rule pending", self._await("pending", lambda: self._evaluated("pending|firing"), crossed_t)
        )
        due_t = crossed_t + self.for_s
        yield Step("rule firing", self._await("firing", lambda: self._evaluated("firing"), due_t))
        page = self._await("the page", lambda: self._notice("firing"), due_t)
        # A jump shows at once, late answers with the next one: the scrape that saw it came at most an interval later.
        shown_t = max(self._fault_t, crossed_t - self._stack.settings.alerts.scrape_interval_s)
        self.page_after_s = page.received_t - shown_t
        said = (page.annotations.get(name, "") for name in ("description", "why"))
        yield Step("page received", page.received_t, " ".join(filter(None, said)))
        resolved = self._await("the end of the page", lambda: self._notice("resolved"), self._mended_t)
        yield Step("resolved", resolved.received_t)

    @property
    def in_time(self) -> bool:
        """Whether the page came within its rule's `for` and the grace."""
        return self.page_after_s is not None and self.page_after_s <= self.for_s + GRACE_S

    def _await(self, what: str, look: Callable[[], Found | None], due_t: float) -> Found:
        while (found := look()) is None:
            if time.time() > due_t + PATIENCE_S:
                raise DemoError(f"{what}: not within {PATIENCE_S:.0f} s of when it was due")
            self._waiting(what)
            time.sleep(LOOK_S)
        return found

    def _first_event_t(self) -> float | None:
        try:
            with self._stack.events.open("rb") as lines:
                first = lines.readline()
        except FileNotFoundError:
            return None
        event = decode(first) if first.endswith(b"\n") else None
        return None if event is None or isinstance(event, (Invalid, Unknown)) else event.t

    def _crossed(self) -> tuple[float, float] | None:
        """Return when the scrape was that first saw the fault, and the value."""
        for series in self._stack.query(f"timestamp({self._metric}) and {self.expression}"):
            scraped_t = float(series["value"][1])
            if scraped_t >= self._fault_t:
                for shown in self._stack.query(self.expression):
                    return scraped_t, float(shown["value"][1])
        return None

    def _evaluated(self, states: str) -> float | None:
        """Return when the evaluation was that put the rule into one of these states."""
        series = f'ALERTS{{alertname="{self.alert}",alertstate=~"{states}"}}'
        found = [float(one["value"][1]) for one in self._stack.query(f"timestamp({series})")]
        return min(found, default=None)

    def _notice(self, status: str) -> Notice | None:
        try:
            notice = self._stack.pager.notices.get_nowait()
        except queue.Empty:
            return None
        return notice if (notice.status, notice.alert) == (status, self.alert) else None
