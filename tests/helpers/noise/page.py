"""Write docs/noise.md: `python -m helpers.noise.page docs/noise.md DAYS RESULTS`. A day of all takes some ten minutes on two cores."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import NamedTuple

import msgspec

from helpers.noise import turns
from helpers.noise.curves import Model, Outcome
from helpers.noise.turns import DAY_S, HOUR_S, T0, Cell, Pattern
from omniwatch import events as ev
from omniwatch.desk.backtest.notifications import SentCounts, counts
from omniwatch.desk.backtest.rules import Standing
from omniwatch.desk.simulation import SCENARIOS
from omniwatch.desk.simulation import events as simulated
from omniwatch.desk.simulation.scenarios import SimulatedListener
from omniwatch.settings import Settings

LISTENERS = (1, 2, 8)
SHARES = (0.007, 0.01, 0.03, 0.05)
OBJECTIVE = 0.03
PATTERNS: dict[Pattern, str] = {
    "pairs": "two in a row",
    "chance": "as chance has it",
    "fives": "five in a row",
}


class Row(NamedTuple):
    """A row of the table: a cell for each number of listeners. `within`: nobody may be called."""

    words: str
    cell: Cell
    within: bool
    arithmetic: str
    handovers: bool = False

    def lives(self, days: int) -> dict[str, Iterator[ev.Event]]:
        """Return the events of the row's devices, by their name."""
        return {
            f"d{number}": handovers(number, days)
            if self.handovers
            else turns.events(replace(self.cell, listeners=number), days)
            for number in LISTENERS
        }


class Count(NamedTuple):
    """Incidents of a row's device: pages and tickets, and the alerts of each."""

    pages: int
    tickets: int
    called: tuple[str, ...]
    filed: tuple[str, ...]


def rows() -> list[Row]:
    """Return the rows of the table."""
    late = [
        Row(
            f"{share:.1%} late, {PATTERNS[pattern]}".replace(".0%", "%"),
            Cell(f"late-{share}-{pattern}", late=share, pattern=pattern),
            share <= OBJECTIVE and pattern == "pairs",
            late_arithmetic(share, pattern),
        )
        for share in SHARES
        for pattern in PATTERNS
    ]
    return [
        *late,
        Row("1% of turns out of sync", Cell("bad", bad=0.01), True, bad_arithmetic(0.01)),
        Row(
            "three handovers a minute",
            Cell("handovers"),
            True,
            "steps of at most 18 ms, realigned: under the limit",
            handovers=True,
        ),
    ]


def late_arithmetic(share: float, pattern: Pattern) -> str:
    """Say how many rows of late answers are long enough for TokenRTT, in a week of one listener."""
    long = Settings().alerts.rtt_answers
    answers = Cell("").answers_a_day * 7
    if pattern == "chance":
        number = answers * (1 - share) * share**long
        return f"{answers:.0f} · {1 - share:.3g} · {share:g}^{long} = {number:.2g} a listener"
    run = turns.RUNS[pattern]
    if run < long:
        return f"no row of {long}"
    return f"{answers:.0f} · {share:g} / {run} = {answers * share / run:.0f} a listener"


def bad_arithmetic(share: float) -> str:
    """Say how likely three turns of five in a row are to be bad."""
    chance = sum(comb(5, k) * share**k * (1 - share) ** (5 - k) for k in range(3, 6))
    return f"three of five turns: {Cell('').answers_a_day * 7 * chance:.2g} a listener"


def handovers(listeners: int, days: int) -> Iterator[ev.Event]:
    """Yield a sliced server's events at 120 km/h; of the camera's pictures, as the server states the drift, one in 300."""
    begins_s, ends_s = Cell("").talk_s
    scenario = msgspec.structs.replace(
        SCENARIOS["handover-120"],
        speech_s=(4.0, 12.0),
        pause_s=(30.0, 70.0),
        listeners=(SimulatedListener(leaves_s=ends_s - begins_s),) * listeners,
    )
    for day in range(days):
        start_t = T0 + day * DAY_S + begins_s
        for number, event in enumerate(simulated(scenario, day, start_t, ends_s - begins_s + 1)):
            if not isinstance(event, ev.Video) or number % 300 == 0:
                yield event


Counts = dict[int, Count]
"""By listeners."""


def counted(outcome: Outcome) -> Count:
    """Count the incidents of one device's outcome."""
    told = counts(outcome.sent)
    named = [
        sorted(
            {
                dict(labels)["alertname"]
                for one in outcome.sent
                if one.receiver == name
                for labels in one.firing
            }
        )
        for name in ("page", "ticket")
    ]
    none = SentCounts(0, 0)
    pages, tickets = (told.get(name, none).incidents for name in ("page", "ticket"))
    return Count(pages, tickets, tuple(named[0]), tuple(named[1]))


def run_row(row: Row, days: int) -> Counts:
    """Return what a row comes to, by listeners."""
    with tempfile.TemporaryDirectory() as place:
        found = Model(Settings(), Path(place)).run(row.lives(days), T0 + days * DAY_S)
    return {number: counted(found.of(f"d{number}")) for number in LISTENERS}


# ---- faults

WELL_S, ILL_S = 2 * HOUR_S, 2 * HOUR_S


class Fault(NamedTuple):
    """A fault itself, whatever its cause, and how people speak with the server: it pages within `within_s`."""

    words: str
    traffic: str
    cell: Cell
    within_s: float


KINDS: dict[str, dict[str, float]] = {
    "all answers late": {"late": 1.0},
    "all turns out of sync": {"bad": 1.0},
    "half of the turns fail": {"failed": 0.5},
}
TRAFFIC: dict[str, dict[str, object]] = {
    "one long session": {},
    "a session per question": {"each_its_session": True},
    "a question each three minutes": {"each_its_session": True, "every_s": (170.0, 190.0)},
}
MINUTE = 60.0
STATED_S: Mapping[tuple[str, str], float] = {
    ("all answers late", "one long session"): 5 * MINUTE,
    ("all turns out of sync", "one long session"): 5 * MINUTE,
    ("all turns out of sync", "a session per question"): 5 * MINUTE,
    ("half of the turns fail", "a question each three minutes"): 30 * MINUTE,
}
"""Where three bad ones in a row are enough; and where three of which each second one fails come after eighteen minutes on average."""
HALF_S = 18 * MINUTE
"""Else half of half an hour's must be bad."""


def faults() -> list[Fault]:
    """Return the faults, each with each traffic."""
    return [
        Fault(
            words,
            traffic,
            Cell(f"{words}/{traffic}", talk_s=(0, WELL_S + ILL_S), begins_s=WELL_S, **kind, **how),  # type: ignore[arg-type]
            STATED_S.get((words, traffic), HALF_S),
        )
        for words, kind in KINDS.items()
        for traffic, how in TRAFFIC.items()
    ]


class Paged(NamedTuple):
    """What a fault comes to: seconds until the first page, its alerts, and incidents."""

    after_s: float | None
    alerts: str
    incidents: int


def run_faults(model: Model) -> list[tuple[Fault, Paged]]:
    """Return what each fault comes to."""
    every = faults()
    lives = {f"f{number}": turns.events(fault.cell, 1) for number, fault in enumerate(every)}
    found = model.run(lives, T0 + WELL_S + ILL_S)
    told = []
    for number, fault in enumerate(every):
        mine = found.of(f"f{number}")
        first = mine.first_page()
        after_s, alerts = (None, "") if first is None else (first[0] - T0 - WELL_S, first[1])
        told.append((fault, Paged(after_s, alerts, counted(mine).pages)))
    return told


# ---- the page

BEGIN, END = "<!-- faults: a test holds what this promises -->\n", "<!-- end of faults -->\n"
NEVER = "never"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fault_table(told: Iterable[tuple[Fault, Paged]]) -> str:
    """Write what each fault comes to."""
    head = ("fault", "traffic", "must page within", "pages after", "by", "incidents")
    return table(
        head,
        (
            (
                fault.words,
                fault.traffic,
                f"{fault.within_s / MINUTE:g} min",
                NEVER if paged.after_s is None else f"{paged.after_s / MINUTE:.1f} min",
                paged.alerts or "-",
                str(paged.incidents),
            )
            for fault, paged in told
        ),
    )


def promised(page: str) -> dict[tuple[str, str], tuple[str, int]]:
    """Return what a page says of each fault with each traffic: after how long somebody is called, and in how many incidents."""
    lines = page.split(BEGIN)[1].split(END, maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(fault, traffic): (after, int(number)) for fault, traffic, _, after, _, number in cells}


def row_table(found: Iterable[tuple[Row, Counts]]) -> str:
    """Write what each row comes to."""
    listeners = (f"{n} listener{'s' if n > 1 else ''}" for n in LISTENERS)
    return table(
        ("what happens", *listeners, "alerts", "rows long enough, a week of one listener"),
        (
            (
                f"**{row.words}**" if row.within else row.words,
                *(f"{by[n].pages}, {by[n].tickets}" for n in LISTENERS),
                ", ".join(sorted({name for one in by.values() for name in (*one.called, *one.filed)})) or "-",
                row.arithmetic,
            )
            for row, by in found
        ),
    )


def rule_words(model: Model) -> str:
    """List the pages and tickets that the model can tell of, and those that it cannot."""
    found = model.standings()
    told = [name for name, standing in found.items() if standing is Standing.JUDGED]
    rest = [name for name in found if name not in told]
    return f"Told of, in whole or in part: {', '.join(told)}.\n\nNot told of, as no turn makes what they ask for: {', '.join(rest)}.\n"


def page(
    found: Sequence[tuple[Row, Counts]], told: Sequence[tuple[Fault, Paged]], model: Model, days: int
) -> str:
    """Write the page."""
    within = [by for row, by in found if row.within]
    pages = sum(one.pages for by in within for one in by.values())
    cell, alerts = Cell(""), Settings().alerts
    milliseconds = [f"{bound * 1000:.0f}" for bound in (*turns.IN_TIME_S, *turns.LATE_S, *turns.STARVED_S)]
    return f"""# Noise: how often the rules call somebody

A fault should call somebody once, and nothing else should. This page, which `make noise` generates, says how often the rules of the default
settings call in a model of turns.

The model: listeners talk {(cell.talk_s[1] - cell.talk_s[0]) / HOUR_S:.0f} hours a day and ask each {cell.every_s[0]:.0f} to {cell.every_s[1]:.0f} s.

- An answer is {cell.speech_s[0]:.0f} to {cell.speech_s[1]:.0f} s of speech. It begins after {milliseconds[0]} to {milliseconds[1]} ms, a late one after {milliseconds[2]} to {milliseconds[3]} ms.
- In a turn that is out of sync the listener hears nothing for {milliseconds[4]} to {milliseconds[5]} ms in its middle.
- The events run through the sidecar's own stream table.
- A real Prometheus is asked the rendered rules at each evaluation, as by `omniwatch backtest`. What Alertmanager sends is worked out from the
  rendered routes.

An incident is one group, from its first message to its end.

## Within the objectives, and beyond

Incidents in {days} day{"s" if days > 1 else ""} of each device: pages, tickets. Rows in bold are within the objectives, and nobody may be called: in their
{days * len(LISTENERS) * len(within)} device-days there were {pages} pages.

{row_table(found)}
`TokenRTT` pages for {alerts.rtt_answers} late answers of a listener in a row, not for fewer. Of such rows a week has as many as the last column says; rows close
together are one incident.

## Faults themselves

The server is well for two hours, then the fault lasts for two.

{BEGIN}{fault_table(told)}{END}
## What the model tells of

{rule_words(model)}
Restarts at night are not in the model, which has no unit. `tests/alerts/test_nights.py` plays a night through all rules of a device: the server is
restarted and loads for almost `model_server.load_s`, the sidecar is away for two scrapes, every counter begins anew. Nobody is told.
"""


def kept(path: Path) -> dict[str, Counts]:
    """Return the rows that an earlier run has computed."""
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Counts])


def main(path: Path, days: int, results: Path) -> None:
    """Compute and write the page. Rows that `results` has are not computed again."""
    found = kept(results)
    results.parent.mkdir(parents=True, exist_ok=True)
    every = rows()
    with ProcessPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as place:
        jobs = {pool.submit(run_row, row, days): row.words for row in every if row.words not in found}
        model = Model(Settings(), Path(place))
        told = run_faults(model)
        for job in as_completed(jobs):
            found[jobs[job]] = job.result()
            results.write_bytes(msgspec.json.encode(found))
            sys.stderr.write(f"{jobs[job]}: {found[jobs[job]]}\n")
        path.write_text(page([(row, found[row.words]) for row in every], told, model, days), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
