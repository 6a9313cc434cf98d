"""Compare verdicts with the truth of incidents: the same seed played again without its fault."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from helpers.incidents import FAULTS, UNSAMPLED, UNSEEN, Incident, incident
from helpers.incidents.sensors import SENSORS
from omniwatch import events as ev
from omniwatch.core.samples import Sample
from omniwatch.core.turns import Judged
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings

EXCESS_S = 0.15
"""Seconds that a fault costs a listener, from which on it counts."""
NOT_BAD, UNKNOWN = "not bad", "unknown"
RED_LINE_S = 0.8
"""Seconds of the settings' default from which on an answer is late."""


@dataclass
class Count:
    """Bad turns of a fault, those with the right cause, and those with a wrong one that is called seen."""

    turns: int = 0
    right: int = 0
    wrong_seen: int = 0


@dataclass
class Tally:
    """Verdicts by fault and symptom."""

    found: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_fault: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    wrong: list[str] = field(default_factory=list)
    fine: int = 0
    """Turns without a fault with which nothing was wrong."""
    called_bad: int = 0
    """Those of them that have a verdict."""
    unseen: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Of each fault that no evidence of a server shows: what was said of the turns that it cost their listener."""

    def of(self, *, mixed: bool = False) -> Count:
        """Sum up the single faults, or the mixtures of two."""
        own = [count for fault, count in self.by_fault.items() if (" + " in fault) == mixed]
        return Count(
            sum(count.turns for count in own),
            sum(count.right for count in own),
            sum(count.wrong_seen for count in own),
        )

    def not_blamed(self) -> tuple[int, int]:
        """Of the faults that no evidence shows: the turns that were not called bad or have the cause unknown, and all."""
        said = sum(self.unseen.values(), Counter[str]())
        return said[NOT_BAD] + said[UNKNOWN], said.total()

    def table(self) -> str:
        """The confusion matrix as text, and each error."""
        lines = [
            f"single faults: {self.of()}",
            f"mixtures of two: {self.of(mixed=True)}",
            f"turns with nothing wrong: {self.fine}, called bad: {self.called_bad}",
        ]
        for (fault, symptom), causes in sorted(self.found.items()):
            count = self.of(mixed=True) if fault == "mixture" else self.by_fault[fault]
            words = ", ".join(f"{cause} {n}" for cause, n in causes.most_common())
            lines.append(f"{fault:<16}{symptom:<9}{count.right / count.turns:>5.0%}  {words}")
        if self.unseen:
            quiet, turns = self.not_blamed()
            lines.append(f"no evidence of a server shows: {quiet} of {turns} not called bad, or unknown")
        for fault, said in sorted(self.unseen.items()):
            lines.append(f"{fault:<32}{', '.join(f'{cause} {n}' for cause, n in said.most_common())}")
        return "\n".join([*lines, *self.wrong])


def judge_incidents(seeds: Iterable[int], unseen: Iterable[int] = ()) -> Tally:
    """Play incidents of one fault each, every fourth of two, and compare each bad turn's verdicts with the faults.

    `unseen` are seeds of incidents whose fault no evidence of a server shows. They stand apart.
    """
    tally, faults = Tally(), list(FAULTS)
    for seed in seeds:
        first = faults[seed % len(faults)]
        if seed % 4:
            _judge(tally, seed, first)
        else:
            second = random.Random(f"{seed} mixture").choice([f for f in faults if f != first])
            _judge(tally, seed, first, second)
    for seed in unseen:
        _judge_unseen(tally, seed, UNSEEN[seed % len(UNSEEN)])
    return tally


def _judge_unseen(tally: Tally, seed: int, fault: str) -> None:
    """Count what is said of each turn that the fault cost its listener, beyond what is said of it without the fault."""
    bad, good = incident(seed, fault)
    judged, without = verdicts(bad), verdicts(good)
    for turn in bad.heard.keys() & good.heard.keys() & judged.keys() & without.keys():
        had, fine = bad.heard[turn], good.heard[turn]
        if max(had.delay_s - fine.delay_s, had.starved_s - fine.starved_s) <= EXCESS_S:
            continue
        before = {verdict.symptom for verdict in without[turn].verdicts}
        causes = {verdict.cause for verdict in judged[turn].verdicts if verdict.symptom not in before}
        blamed = sorted(causes - {UNKNOWN})
        tally.unseen[fault][" and ".join(blamed) or (UNKNOWN if causes else NOT_BAD)] += 1
        if blamed:
            tally.wrong.append(f"seed {seed}, turn {turn}, {fault}: {judged[turn].verdicts}")


def _judge(tally: Tally, seed: int, *faults: str) -> None:
    bad, good = incident(seed, *faults)
    fault = " + ".join(faults)
    judged, without = verdicts(bad), verdicts(good)
    for turn in good.heard.keys() & without.keys():
        if good.heard[turn].delay_s <= RED_LINE_S and good.heard[turn].starved_s < EXCESS_S:
            tally.fine += 1
            tally.called_bad += bool(without[turn].verdicts)
    for turn in bad.heard.keys() & good.heard.keys() & judged.keys() & without.keys():
        had, fine = bad.heard[turn], good.heard[turn]
        before = {verdict.symptom for verdict in without[turn].verdicts}
        found = {verdict.symptom: verdict for verdict in judged[turn].verdicts}
        for symptom, excess_s in (
            ("late", had.delay_s - fine.delay_s),
            ("starved", had.starved_s - fine.starved_s),
        ):
            unseen = symptom == "late" and (symptom not in found or turn in bad.late_to_see)
            if symptom in before or excess_s <= EXCESS_S or unseen:
                continue
            verdict = found.get(symptom)
            cause, certainty = (verdict.cause, verdict.certainty) if verdict else ("none", "unknown")
            right = any(cause in told(bad, one, symptom) for one in faults)
            count = tally.by_fault[fault]
            count.turns += 1
            count.right += right
            if len(faults) > 1:
                tally.found["mixture", symptom]["one of the two" if right else cause] += 1
            else:
                tally.found[fault, symptom][cause + ("" if certainty == "seen" else f" ({certainty})")] += 1
            if not right:
                count.wrong_seen += certainty == "seen"
                tally.wrong.append(
                    f"seed {seed}, turn {turn}, {fault}, {symptom} by {excess_s:.2f} s: {verdict}"
                )


def told(bad: Incident, fault: str, symptom: str) -> frozenset[str]:
    """What may be said of a fault, with the events that there are."""
    without_sensor = fault in SENSORS and fault not in bad.sensors
    causes: frozenset[str] = getattr(UNSAMPLED if without_sensor else FAULTS[fault], symptom)
    if not bad.text and "voice" in causes:
        causes |= {"thinking"}
    return causes


def verdicts(played: Incident) -> dict[int, Judged]:
    """Judge the turns of the incident's listener, through the real decoder."""
    found: list[Judged] = []
    samples = [msgspec.json.decode(line, type=Sample) for line in played.samples]
    table = RecordedTable(Settings(), found.append, samples)
    for line in played.lines:
        event = ev.decode(line)
        assert isinstance(event, ev.Event)
        table.apply(event)
    table.finish()
    return {int(judged.record.turn or 0): judged for judged in found if judged.stream == "a"}
