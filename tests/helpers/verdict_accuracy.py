"""Compare verdicts with the truth of incidents: the same seed played again without its fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from helpers.incidents import FAULTS, UNSAMPLED, Incident, incident
from omniwatch import events as ev
from omniwatch.desk.explain.table import TurnTable
from omniwatch.desk.explain.turns import Judged
from omniwatch.settings import Settings

EXCESS_S = 0.15
"""Seconds that a fault costs a listener, from which on it counts."""
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

    def of(self, *, unsampled: bool) -> Count:
        """Sum up the faults that only a sample of the device would show, or all others."""
        own = [count for fault, count in self.by_fault.items() if (FAULTS[fault] == UNSAMPLED) == unsampled]
        return Count(
            sum(count.turns for count in own),
            sum(count.right for count in own),
            sum(count.wrong_seen for count in own),
        )

    def table(self) -> str:
        """The confusion matrix as text, and each error."""
        lines = [
            f"faults that events show: {self.of(unsampled=False)}",
            f"faults that only samples show: {self.of(unsampled=True)}",
            f"turns with nothing wrong: {self.fine}, called bad: {self.called_bad}",
        ]
        for (fault, symptom), causes in sorted(self.found.items()):
            count = self.by_fault[fault]
            words = ", ".join(f"{cause} {n}" for cause, n in causes.most_common())
            lines.append(f"{fault:<16}{symptom:<9}{count.right / count.turns:>5.0%}  {words}")
        return "\n".join([*lines, *self.wrong])


def judge_incidents(seeds: Iterable[int]) -> Tally:
    """Play incidents of one fault each, in turn, and compare each bad turn's verdicts with the fault."""
    tally, faults = Tally(), list(FAULTS)
    for seed in seeds:
        _judge(tally, seed, faults[seed % len(faults)])
    return tally


def _judge(tally: Tally, seed: int, fault: str) -> None:
    bad, good = incident(seed, fault)
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
            right = cause in told(bad, fault, symptom)
            count = tally.by_fault[fault]
            count.turns += 1
            count.right += right
            tally.found[fault, symptom][cause + ("" if certainty == "seen" else f" ({certainty})")] += 1
            if not right:
                count.wrong_seen += certainty == "seen"
                tally.wrong.append(
                    f"seed {seed}, turn {turn}, {fault}, {symptom} by {excess_s:.2f} s: {verdict}"
                )


def told(bad: Incident, fault: str, symptom: str) -> frozenset[str]:
    """What may be said of a fault, with the events that there are."""
    causes: frozenset[str] = getattr(FAULTS[fault], symptom)
    if not bad.text and "voice" in causes:
        causes |= {"thinking"}
    return causes


def verdicts(played: Incident) -> dict[int, Judged]:
    """Judge the turns of the incident's listener, through the real decoder."""
    found: list[Judged] = []
    table = TurnTable(Settings(), found.append)
    for line in played.lines:
        event = ev.decode(line)
        assert isinstance(event, ev.Event)
        table.apply(event)
    table.finish()
    return {int(judged.record.turn or 0): judged for judged in found if judged.stream == "a"}
