"""Both curves of the last quarter of an hour, a sample a second, and where the contract's rules stood. Pure.

Samples are numbered, and their times follow from the newest one's: a clock that is set moves all of them alike.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from math import nan

import msgspec

from omniwatch.core.rule_states import RuleStates, Sample, Span, contract_rules
from omniwatch.settings import Alerts

SECONDS = 900
"""Samples kept."""
ABSENT_S = 3
"""Samples missed in a row from which on a rule takes the series for absent: the sidecar was stopped, not only busy."""
VERSION = 1
"""Format of `Kept`."""


class Kept(msgspec.Struct, frozen=True):
    """What a file keeps: for each slot drift and round trip as packed floats of this machine, the oldest first."""

    version: int
    t: float
    """Time of the newest sample."""
    curves: dict[int, tuple[bytes, bytes]]


class Curve:
    """What was shown of a slot, in rings: a sample's place is its number modulo SECONDS. NaN stands for nothing."""

    def __init__(self) -> None:
        self.drift, self.rtt = (array("f", [nan]) * SECONDS for _ in range(2))
        """In ms. A round trip is never negative, so one that the server measured is kept as its negative."""
        self.last = -1
        """Number of the last sample that has a value."""

    def put(self, number: int, sample: Sample) -> None:
        """Enter a sample."""
        at = number % SECONDS
        self.drift[at] = nan if sample.drift_ms is None else sample.drift_ms
        rtt_ms = nan if sample.rtt_ms is None else sample.rtt_ms
        self.rtt[at] = rtt_ms if sample.vantage == "client" else -rtt_ms
        if sample.has_series:
            self.last = number

    def in_order(self, number: int) -> tuple[array[float], array[float]]:
        """Return both rings unrolled, the oldest first, where `number` is the newest."""
        at = (number + 1) % SECONDS
        return self.drift[at:] + self.drift[:at], self.rtt[at:] + self.rtt[:at]

    def sample(self, number: int, t: float) -> Sample:
        """Return what was entered, as being of t."""
        drift_ms, rtt_ms = self.drift[number % SECONDS], self.rtt[number % SECONDS]
        return Sample(
            t,
            None if drift_ms != drift_ms else drift_ms,
            None if rtt_ms != rtt_ms else abs(rtt_ms),
            "client" if rtt_ms > 0 else "server",
        )


class History:
    """The curves of all slots, and the states of both rules over them."""

    def __init__(self, alerts: Alerts) -> None:
        self.number = -1
        """Number of the newest sample; -1 before the first."""
        self.t = 0.0
        """Its time, in s since the epoch."""
        self.changed = False
        """Whether a value came since this was last set back."""
        self._curves: dict[int, Curve] = {}
        self._states: dict[int, list[tuple[str, RuleStates]]] = {}
        self.configure(alerts)

    def configure(self, alerts: Alerts) -> None:
        """Take new settings: what was kept is judged by them."""
        self._rules = contract_rules(alerts)
        self._eval_s = alerts.evaluation_interval_s
        self._judge_anew()

    def clock_set(self, by_s: float) -> None:
        """Take that the wall clock was set: what was before moves with it."""
        self.t += by_s
        self._judge_anew()

    @property
    def first(self) -> int:
        """Number of the oldest sample."""
        return max(0, self.number - SECONDS + 1)

    def add(self, number: int, t: float, samples: Iterable[tuple[int, Sample]]) -> None:
        """Take the sample `number`, of t, of the slots that show anything; numbers that were passed over are gaps."""
        shown = {slot: sample._replace(t=t) for slot, sample in samples if sample.has_series}
        nothing = Sample(t)
        for missed in range(max(self.number + 1, number - SECONDS), number):
            for curve in self._curves.values():
                curve.put(missed, nothing)
        self._curves = {s: c for s, c in self._curves.items() if s in shown or number - c.last < SECONDS}
        for slot in shown.keys() - self._curves.keys():
            self._curves[slot] = Curve()
        stopped_t = t - number + self.number + 1 if number - self.number > ABSENT_S else None
        self.changed = self.changed or bool(shown)
        self.number, self.t = number, t
        for slot, curve in self._curves.items():
            sample = shown.get(slot, nothing)
            curve.put(number, sample)
            if stopped_t is not None:
                self._judge(slot, Sample(stopped_t))
            self._judge(slot, sample)
        self._states = {slot: states for slot, states in self._states.items() if slot in self._curves}

    def columns(self) -> dict[int, tuple[array[float], array[float]]]:
        """Return, by slot, drift and round trip from `first` on as a `Curve` has them, NaN where there is none.

        It copies and no more, for scrapes wait meanwhile.
        """
        kept = self.number + 1 - self.first
        found = {}
        for slot, curve in sorted(self._curves.items()):
            drift, rtt = (ring[-kept:] for ring in curve.in_order(self.number))
            found[slot] = drift, rtt
        return found

    def spans(self) -> Iterator[tuple[str, int, Span]]:
        """Yield rule, slot and state of all states in this time."""
        for slot, states in self._states.items():
            for name, state in states:
                last = state.now()
                for span in (*state.over, last) if last else state.over:
                    yield name, slot, span

    def now(self, slot: int) -> dict[str, Span]:
        """Return each rule's ongoing state for a slot; of two of its series the one that fires, then the older."""
        going = [(name, span) for name, state in self._states.get(slot, ()) if (span := state.now())]
        return dict(sorted(going, key=lambda found: (found[1].state == "firing", -found[1].start_t)))

    def _judge(self, slot: int, sample: Sample) -> None:
        states = self._states.get(slot)
        if states is None:
            states = self._states[slot] = [
                (rule.name, RuleStates(rule.threshold, rule.for_s, self._eval_s))
                for rule in self._rules
                for _ in rule.values(sample)
            ]
        values = (value for rule in self._rules for value in rule.values(sample))
        for (_, state), value in zip(states, values, strict=True):
            state.add(sample.t, value)
            while state.over and state.over[0].end_t < sample.t - SECONDS:
                del state.over[0]

    def _judge_anew(self) -> None:
        self._states.clear()
        for slot, curve in self._curves.items():
            for number in range(self.first, self.number + 1):
                self._judge(slot, curve.sample(number, self.t - self.number + number))

    def kept(self) -> Kept:
        """Return what a file keeps."""
        curves = {slot: curve.in_order(self.number) for slot, curve in self._curves.items()}
        return Kept(VERSION, self.t, {slot: (a.tobytes(), b.tobytes()) for slot, (a, b) in curves.items()})

    def restore(self, kept: Kept, now: float) -> None:
        """Go on from what a file kept; `now` is the present. Raises ValueError where it is none of this format."""
        if kept.version != VERSION:
            raise ValueError(f"version {kept.version}, this program reads version {VERSION}")
        curves: dict[int, Curve] = {}
        for slot, (drift, rtt) in kept.curves.items():
            curve = curves[slot] = Curve()
            curve.drift, curve.rtt = array("f", drift), array("f", rtt)
            if len(curve.drift) != SECONDS or len(curve.rtt) != SECONDS:
                raise ValueError(f"slot {slot} has other than {SECONDS} samples")
            curve.last = max((n for n in range(SECONDS) if curve.sample(n, 0.0).has_series), default=-SECONDS)
        # A clock that was set back meanwhile does not say how long the sidecar was away: a second, then.
        gone_s = max(1.0, now - kept.t)
        if gone_s < SECONDS:
            self._curves, self.number, self.t = curves, SECONDS - 1, now - gone_s
            self._judge_anew()
