"""What the live page shows, as JSON: what a second needs is built once and shared by all pages, and each gets what is new to it."""

from __future__ import annotations

import gzip
import re
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from math import isinf
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from omniwatch import __version__
from omniwatch.core.rule_states import Sample, Span, contract_rules
from omniwatch.core.stream import LastBad, Stream
from omniwatch.core.turns import Judged
from omniwatch.explain.text import RUNBOOKS
from omniwatch.ingest.intake import Intake
from omniwatch.live.history import History
from omniwatch.live.state_line import state_of
from omniwatch.metrics.snapshot import ScrapeSnapshot, drift_ms, eta_s, rtt_ms, slope_ppm, state_word
from omniwatch.settings import Settings

SCHEMA = 1
"""A page of another number does not fit."""
ROWS = 64
"""Listeners shown, the worst first."""
TURNS = 200
"""Bad turns kept for a page that begins."""
TURNS_S = 3600.0
"""Seconds for which a bad turn is shown."""
ANSWERS = 32
"""Answers kept of a second: pages that ask each second have one or two cursors among them."""
SEEN_S = 10.0
"""The feed repeats states that ended up to this long before a page's last sample: the rule may notice an end late."""
GZIP_LEVEL = 1
LINKS = {
    "streams": "/streams.json",
    "turns": "/turns.json",
    "runbooks": "/runbooks/",
    "by_symptom": {symptom: f"/runbooks/{name}" for symptom, name in RUNBOOKS.items()},
}
"""Where the page finds more; the metrics' place is in the page itself."""

_CURSOR = re.compile(r"([0-9a-f]{1,32})\.([0-9]{1,12})\.([0-9]{1,12})", re.ASCII)
Json = dict[str, Any]


def samples(view: ScrapeSnapshot) -> list[tuple[int, Sample]]:
    """Return what a scrape would show now of each slot."""
    return [
        (stream.slot, Sample(view.now, drift_ms(stream, view), rtt_ms(stream, view), stream.answers.vantage))
        for stream in view.slotted
    ]


def worst(judged: Judged) -> LastBad | None:
    """Return a judged turn with its worst verdict; None for a good one."""
    if not judged.verdicts:
        return None
    record = judged.record
    verdict = max(judged.verdicts, key=lambda one: (one.cause != "unknown", one.excess_ms))
    return LastBad(record.number, record.began_t, verdict.symptom, verdict.cause, round(verdict.excess_ms, 1))


def source_json(intake: Intake, now: float) -> Json:
    """Return how a source is, as JSON values."""
    return {
        "name": intake.name,
        "up": intake.source.up,
        "blind": intake.blind,
        "lag_s": round(intake.lag_s(now), 1),
        "lost": intake.sequence.lost,
        "invalid": sum(intake.counts.invalid.values()),
        "error": "" if intake.source.up else str(intake.source.error or ""),
        "last_t": intake.counts.last_t,
    }


def _round(value: float | None, digits: int = 1) -> float | None:
    return None if value is None or isinf(value) else round(value, digits)


class Built(NamedTuple):
    """What a second needs: JSON for all pages, and the history as it was then."""

    common: bytes = b"{}"
    number: int = -1
    first: int = 0
    t: float = 0.0
    columns: Mapping[int, tuple[array[float], array[float]]] = MappingProxyType({})
    spans: Sequence[tuple[str, int, Span]] = ()
    run: str = ""
    bad: int = 0
    """Bad turns so far."""
    turns: Sequence[tuple[int, Json]] = ()
    """The newest of them, each with its place among all."""


class Feed:
    """The feed of one sidecar. `run` tells its cursors from those of others.

    `judged`, `clock_set` and `build` are for who holds the table's lock; `answer` is for one thread at a time.
    """

    def __init__(self, settings: Settings, history: History, run: int) -> None:
        self.history = history
        self._run = run
        self._turns: deque[tuple[int, Json]] = deque(maxlen=TURNS)
        self._bad = 0
        self._built = Built()
        self._answers: dict[tuple[int, int, bool], bytes] = {}

    def clock_set(self) -> None:
        """Have each page begin anew: all times changed."""
        self._run += 1

    def judged(self, judged: Judged) -> None:
        """Take a turn that was judged."""
        if judged.verdicts:
            self._bad += 1
            record = judged.record
            verdicts = [
                {
                    "symptom": v.symptom,
                    "cause": v.cause,
                    "certainty": v.certainty,
                    "excess_ms": _round(v.excess_ms),
                }
                for v in judged.verdicts
            ]
            turn = {"number": record.number, "t": record.began_t, "slot": record.slot, "kind": record.kind}
            self._turns.append((self._bad, turn | {"verdicts": verdicts}))

    def build(self, view: ScrapeSnapshot, device: Json) -> None:
        """Build what all pages get of this second."""
        settings = view.table.settings
        rows = sorted((self._row(stream, view) for stream in view.slotted), key=_badness)
        sources = [source_json(intake, view.now) for intake in view.intakes]
        run = f"{self._run:x}"
        state = state_of(rows, sources, view.now, settings)
        for row in rows:
            del row["rules_since"], row["turn_t"]
        common = msgspec.json.encode(
            {
                "schema": SCHEMA,
                "run": run,
                "cursor": f"{run}.{self.history.number + 1}.{self._bad}",
                "now": round(view.now, 3),
                "version": __version__,
                "device_name": settings.site.device,
                "state": state,
                "rules": [
                    {"name": rule.name, "of": of, "threshold": rule.threshold, "for_s": rule.for_s}
                    for rule, of in zip(contract_rules(settings.alerts), ("drift", "rtt"), strict=True)
                ],
                "listeners": rows[:ROWS],
                "more": len(view.table.state.streams) - len(rows[:ROWS]),
                "turns_judged": view.totals.turns_judged,
                "device": device,
                "sources": sources,
                "links": LINKS,
            }
        )
        history = self.history
        self._built = Built(
            common,
            history.number,
            history.first,
            history.t,
            history.columns(),
            list(history.spans()),
            run,
            self._bad,
            list(self._turns),
        )
        self._answers.clear()

    def _row(self, stream: Stream, view: ScrapeSnapshot) -> Json:
        at, player = view.at(stream), stream.player
        suffers = view.table.turns.so_far(stream, at)
        going = self.history.now(stream.slot)
        away = view.table.is_away(stream, at)
        ahead_s = max(0.0, player.end_t - at) + max(0.0, player.sent_ms - player.reached_ms) / 1000
        row = {
            "slot": stream.slot,
            "kind": stream.kind,
            "state": "away" if away else state_word(stream),
            "since": round(stream.opened_t, 3),
            "drift_ms": _round(drift_ms(stream, view)),
            "slope_ppm": _round(slope_ppm(stream, view)),
            "eta_s": _round(eta_s(stream, view)),
            "rtt_ms": _round(rtt_ms(stream, view)),
            "vantage": stream.answers.vantage,
            "ear": stream.ear,
            "underrun_s": _round(stream.underrun_s, 2),
            "ahead_s": _round(ahead_s, 2) if stream.speaking else None,
            "silent_s": _round(stream.silent_s(at)),
            "rules": {rule: span.state for rule, span in going.items()},
            "rules_since": {rule: span.start_t for rule, span in going.items()},
            "turn_t": stream.asked_t if stream.asked or player.start_t < 0 else player.start_t,
            "suffers": suffers and {"symptom": suffers.symptom, "cause": suffers.cause},
            "resume": stream.resumed and {"t": stream.resumed_t, "result": stream.resumed},
            "bad": stream.bad and stream.bad._asdict(),
        }
        if view.table.settings.site.live_details:
            row |= {"id": stream.id, "peer": stream.peer}
        return row

    def answer(self, cursor: str, packed: bool = False) -> bytes:
        """Return what is new to a page since its cursor, all where it is none of this run, as JSON, compressed if `packed`."""
        since, turns = self._since(cursor)
        key = since, turns, packed
        known = self._answers.get(key)
        if known is None:
            known = (
                self._answer(since, turns)
                if not packed
                else gzip.compress(self.answer(cursor), GZIP_LEVEL, mtime=0)
            )
            if len(self._answers) < ANSWERS:
                self._answers[key] = known
        return known

    def _since(self, cursor: str) -> tuple[int, int]:
        """Return the number of the first sample that the page lacks, and of the last bad turn it has; (-1, 0): it has nothing."""
        found = _CURSOR.fullmatch(cursor)
        built = self._built
        if found is None or found[1] != built.run:
            return -1, 0
        since, turns = int(found[2]), int(found[3])
        fits = built.first <= since <= built.number + 1 and 0 <= built.bad - turns <= TURNS
        return (since, turns) if fits else (-1, 0)

    def _answer(self, since: int, turns: int) -> bytes:
        built = self._built
        first = max(since, built.first)
        count = built.number + 1 - first
        start_t = built.t - built.number + first
        part = {
            "reset": since < 0,
            "history": {
                "step": 1,
                "first": first,
                "start": round(start_t, 3),
                "count": count,
                "columns": _columns(built, first - built.first) if count else {},
            },
            "states": [
                {
                    "rule": rule,
                    "slot": slot,
                    "state": span.state,
                    "start": span.start_t,
                    "end": span.end_t if span.over else None,
                }
                for rule, slot, span in built.spans
                if span.end_t >= start_t - SEEN_S or not span.over
            ],
            "turns": [
                turn for number, turn in built.turns if number > turns and turn["t"] > built.t - TURNS_S
            ],
        }
        return built.common[:-1] + b"," + msgspec.json.encode(part)[1:]


def _columns(built: Built, skipped: int) -> dict[str, msgspec.Raw]:
    found = {}
    for slot, (drift, rtt) in built.columns.items():
        lists = {
            name: [None if value != value else round(sign(value), 1) for value in curve[skipped:]]
            for name, curve, sign in (("drift", drift, float), ("rtt", rtt, abs))
        }
        shown = {name: values for name, values in lists.items() if values.count(None) < len(values)}
        if shown:
            # A whole window of 64 listeners is 115,200 numbers: as objects, those of one are there at a time.
            found[str(slot)] = msgspec.Raw(msgspec.json.encode(shown))
    return found


def _badness(row: Json) -> tuple[Any, ...]:
    """Sort the worst first: what fires, what is bad now, what waits, then by drift and round trip."""
    states = row["rules"].values()
    return (
        "firing" not in states,
        row["suffers"] is None,
        "pending" not in states,
        -row["silent_s"],
        -abs(row["drift_ms"] or 0.0),
        -(row["rtt_ms"] or 0.0),
        row["slot"],
    )
