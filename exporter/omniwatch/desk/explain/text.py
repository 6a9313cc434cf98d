"""Choose the bad turns to show, and write them as lines or as JSON values, newest first."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec

from omniwatch.desk.explain.record import NEVER, Record
from omniwatch.desk.explain.turns import Judged
from omniwatch.desk.explain.verdict import Verdict
from omniwatch.replay import clock

SHOWN = 500
"""Bad turns kept to be shown, the newest."""
HEADING = ("at", "slot", "symptom", "cause", "certainty", "excess")


class Filter(NamedTuple):
    """What is shown; None: all."""

    symptom: str | None = None
    cause: str | None = None
    slot: int | None = None

    def chosen(self, judged: Judged) -> list[Verdict]:
        """Return the turn's verdicts that are to be shown."""
        if self.slot not in (None, judged.record.slot):
            return []
        return [
            v for v in judged.verdicts if self.symptom in (None, v.symptom) and self.cause in (None, v.cause)
        ]


class Bad:
    """The bad turns of a recording that are to be shown, and how many turns were judged."""

    def __init__(self, chosen: Filter) -> None:
        self.judged = self.bad = self.matching = 0
        self._filter = chosen
        self._kept: deque[Judged] = deque(maxlen=SHOWN)

    def take(self, judged: Judged) -> None:
        """Take a turn that was judged."""
        self.judged += 1
        self.bad += bool(judged.verdicts)
        if self._filter.chosen(judged):
            self.matching += 1
            self._kept.append(judged)

    def newest_first(self) -> list[Judged]:
        """Return those to be shown."""
        return sorted(self._kept, key=lambda judged: -began(judged.record))

    def report(self, first_t: float) -> str:
        """Return a line on the whole, then a table with a line for each verdict. Times count from `first_t`."""
        lines = [f"{self.bad} of {self.judged} turns judged were bad{self._less()}"]
        rows = [
            _row(judged.record, verdict, first_t)
            for judged in self.newest_first()
            for verdict in self._filter.chosen(judged)
        ]
        if rows:
            widths = [max(map(len, column)) for column in zip(HEADING, *rows, strict=True)]
            lines += ["", *(_aligned(row, widths) for row in (HEADING, *rows))]
        return "\n".join(lines) + "\n"

    def _less(self) -> str:
        if self.matching > SHOWN:
            return f"; the newest {SHOWN} of {self.matching} that match are shown"
        return f"; {self.matching} of them match" if self.matching < self.bad else ""

    def as_json(self, first_t: float) -> dict[str, Any]:
        """Return the whole as JSON values: each turn's record with all of its verdicts."""
        return {
            "first_t": first_t,
            "turns_judged": self.judged,
            "turns_bad": self.bad,
            "turns_matching": self.matching,
            "turns": [
                judged.record.as_json() | {"verdicts": msgspec.to_builtins(judged.verdicts)}
                for judged in self.newest_first()
            ],
        }


def began(record: Record) -> float:
    """Return when a turn began: its question, or its first speech where no question is known."""
    return record.sent_t if record.asked_t == NEVER else record.asked_t


def _row(record: Record, verdict: Verdict, first_t: float) -> tuple[str, ...]:
    slot = "-" if record.slot < 0 else str(record.slot)
    excess = f"{verdict.excess_ms:.0f} ms"
    return (
        clock(began(record) - first_t),
        slot,
        verdict.symptom,
        verdict.cause,
        verdict.certainty,
        excess if verdict.excess_ms else "-",
    )


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    *words, last = row
    cells = [f"{word:<{width}}" for word, width in zip(words, widths, strict=False)]
    return "  ".join([*cells, f"{last:>{widths[-1]}}"])
