"""Choose the judged turns to show, and write them as lines, as JSON values, or one as a waterfall. A turn is what `shown` gives."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

from omniwatch.replay import clock

SHOWN = 500
"""Turns kept to be shown, the newest."""
HEADING = ("turn", "at", "slot", "symptom", "cause", "certainty", "excess")
WIDTH = 64
"""Columns of a waterfall."""
RUNBOOKS = {
    "late": "TokenRTT",
    "starved": "CodecDrift",
    "skewed": "CodecDrift",
    "silent": "StreamSilent",
    "failed": "AnswersFailing",
}
"""The runbook that has a section for each cause of a symptom."""

Turn = dict[str, Any]


class Filter(NamedTuple):
    """What is shown; None: all. `since_t` is in s since the epoch."""

    symptom: str | None = None
    cause: str | None = None
    slot: int | None = None
    since_t: float | None = None

    def chosen(self, turn: Turn) -> list[dict[str, Any]]:
        """Return the turn's verdicts that are to be shown."""
        if self.slot not in (None, turn["slot"]) or turn["began_t"] < (self.since_t or 0.0):
            return []
        return [
            verdict
            for verdict in turn["verdicts"]
            if self.symptom in (None, verdict["symptom"]) and self.cause in (None, verdict["cause"])
        ]


class Bad:
    """The bad turns that are to be shown, how many turns were judged, and the turn `number`, bad or not."""

    def __init__(self, chosen: Filter, number: int | None = None) -> None:
        self.judged = self.bad = self.matching = 0
        self.one: Turn | None = None
        self._filter, self._number = chosen, number
        self._kept: deque[Turn] = deque(maxlen=SHOWN)

    def take(self, turn: Turn) -> None:
        """Take a turn that was judged."""
        self.judged += 1
        self.bad += bool(turn["verdicts"])
        if turn["number"] == self._number:
            self.one = turn
        if self._filter.chosen(turn):
            self.matching += 1
            self._kept.append(turn)

    def newest_first(self) -> list[Turn]:
        """Return those to be shown."""
        return sorted(self._kept, key=lambda turn: -float(turn["began_t"]))

    def report(self, first_t: float | None) -> str:
        """Return a line on the whole, then a line for each verdict. Times count from `first_t`; None: they are the day's, here."""
        lines = [f"{self.bad} of {self.judged} turns judged were bad{self._less()}"]
        if first_t is None:
            lines.append("A turn that is under way is judged when its playback is over.")
        rows = [
            _row(turn, verdict, first_t)
            for turn in self.newest_first()
            for verdict in self._filter.chosen(turn)
        ]
        if rows:
            widths = [max(map(len, column)) for column in zip(HEADING, *rows, strict=True)]
            lines += ["", *(_aligned(row, widths) for row in (HEADING, *rows))]
        return "\n".join(lines) + "\n"

    def _less(self) -> str:
        if self.matching > SHOWN:
            return f"; the newest {SHOWN} of {self.matching} that match are shown"
        return f"; {self.matching} of them match" if self.matching < self.bad else ""

    def as_json(self, first_t: float | None) -> dict[str, Any]:
        """Return the whole as JSON values: each turn's record with all of its verdicts."""
        counts = {"turns_judged": self.judged, "turns_bad": self.bad, "turns_matching": self.matching}
        return {"first_t": first_t, **counts, "turns": self.newest_first()}


def _row(turn: Turn, verdict: dict[str, Any], first_t: float | None) -> tuple[str, ...]:
    return (
        str(turn["number"]),
        at(turn, first_t),
        "-" if turn["slot"] < 0 else str(turn["slot"]),
        verdict["symptom"],
        verdict["cause"],
        verdict["certainty"],
        f"{verdict['excess_ms']:.0f} ms" if verdict["excess_ms"] else "-",
    )


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    *words, last = row
    cells = [f"{word:<{width}}" for word, width in zip(words, widths, strict=False)]
    return "  ".join([*cells, f"{last:>{widths[-1]}}"])


def at(turn: Turn, first_t: float | None) -> str:
    """Return when a turn began: in the recording that begins at `first_t`, or by the clock."""
    began_t = turn["began_t"]
    return time.strftime("%H:%M:%S", time.localtime(began_t)) if first_t is None else clock(began_t - first_t)


def waterfall(turn: Turn, buffer_s: float, first_t: float | None) -> tuple[list[str], str, list[str]]:
    """Return the lines above the player's, the player's line with gaps where the listener heard nothing, and the evidence."""
    text_t, sent_t = turn["text_t"], turn["sent_t"]
    sent, arrived = turn["sent"], turn["arrived"] if turn["ear"] == "kernel" else []
    heard = arrived or sent
    gaps, end_t = [], (heard[0][0] if heard else 0.0) + buffer_s
    began_t = end_t
    for t, _, ms, *_ in heard:
        if t > end_t:
            gaps.append((end_t, t))
        end_t = max(end_t, t) + ms / 1000
    whole_s = max(end_t, 0.1)

    def bar(begin: float, end: float, sign: str = "\u2588") -> str:
        first = round(begin / whole_s * WIDTH)
        return " " * first + sign * max(1, round(end / whole_s * WIDTH) - first)

    def marks(pieces: list[list[float]]) -> str:
        columns = {round(piece[1] / whole_s * (WIDTH - 1)) for piece in pieces}
        return "".join("|" if n in columns else " " for n in range(WIDTH)).rstrip()

    def line(name: str, s: float, drawn: str) -> str:
        return f"{name:<9}{s:>7.2f} s  {drawn}"

    lines = [f"turn {turn['number']}, slot {turn['slot']}, {turn['kind']}, {at(turn, first_t)}"]
    if sent_t is not None:
        known_t = text_t if text_t is not None and 0 <= text_t <= sent_t else sent_t
        lines += [
            line("thinking", known_t, bar(0, known_t)),
            line("voice", sent_t - known_t, bar(known_t, sent_t)),
        ]
    if arrived and sent_t is not None:
        lines.append(line("network", arrived[0][3] - sent_t, bar(sent_t, arrived[0][3])))
    lines.append(line("sent", turn["sent_ms"] / 1000, marks(sent)))
    if arrived:
        lines.append(line("arrived", turn["arrived_ms"] / 1000, marks(arrived)))
    player = list(bar(began_t, end_t)) if heard else []
    for a, b in gaps:
        first, last = round(a / whole_s * WIDTH), round(b / whole_s * WIDTH)
        player[first : max(last, first + 1)] = "\u2591" * max(1, last - first)
    return lines, line("player", end_t - began_t, "".join(player)), evidence(turn)


def evidence(turn: Turn) -> list[str]:
    """Return for each verdict of a turn what it rests on, and where the runbook says what to do."""
    lines = []
    for verdict in turn["verdicts"]:
        symptom, cause, runbook = verdict["symptom"], verdict["cause"], RUNBOOKS.get(verdict["symptom"])
        lines += ["", f"{symptom}: {cause} ({verdict['certainty']}), {verdict['excess_ms']:.0f} ms"]
        lines += [f"  {name}: {ms:.0f} ms" for name, ms in verdict.get("parts", {}).items() if ms]
        lines += [f"  {name} = {value}" for name, value in verdict.get("numbers", {}).items()]
        if runbook:
            lines.append(f'  what to do: omniwatch runbook {runbook}, "{cause}"')
    return lines or ["", "a good turn"]
