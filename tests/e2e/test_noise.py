"""How often the rules call somebody: a minute's version of `make noise`, and its model held against a whole backtest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import pytest

from helpers.backtest_command import record
from helpers.noise import page, turns
from helpers.noise.curves import Model
from helpers.noise.turns import DAY_S, HOUR_S, T0, Cell
from omniwatch.desk.backtest import rule_sets, site
from omniwatch.desk.backtest.rules import Standing
from omniwatch.desk.backtest.run import Verdict, backtest
from omniwatch.settings import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def model(tmp_path) -> Model:
    return Model(Settings(), tmp_path)


@pytest.mark.parametrize(
    ("share", "pattern"), [(0.03, "pairs"), (0.05, "fives"), (0.007, "chance"), (0.3, "alone")]
)
def test_late_answers_are_as_many_and_stand_as_the_cell_says(share, pattern):
    answers = list(islice(turns.late_answers(share, pattern, random.Random(4)), 200_000))
    assert sum(answers) / len(answers) == pytest.approx(share, rel=0.1)
    runs = {len(list(run)) for late, run in groupby(answers[:-5]) if late}
    if pattern != "chance":
        assert runs == {turns.RUNS[pattern]}


def lives(verdicts: list[Verdict], until: float) -> Iterator[tuple[object, ...]]:
    """Every episode, by what both ways of computing it must agree on."""
    for verdict in verdicts:
        for alert in verdict.alerts if verdict.rule.severity != "none" else ():
            series = tuple(pair for pair in alert.labels if pair[0] not in ("device", "instance"))
            for one in alert.episodes:
                over_t = None if one.over_t is None or one.over_t > until else one.over_t
                if one.pending_t <= until:
                    yield verdict.rule.name, series, one.pending_t, one.firing_t, over_t


def test_the_model_agrees_with_a_backtest_of_the_same_events(tmp_path, model):
    """The backtest reads a file, scrapes each second and asks for every series; the model does none of that."""
    cell = Cell(
        "spoiled",
        listeners=3,
        late=0.4,
        pattern="fives",
        bad=0.3,
        failed=0.1,
        talk_s=(0, 1800),
        every_s=(15, 40),
    )
    path = record(tmp_path / "events.jsonl", turns.events(cell, 1))
    bundle = site.rendered(Settings(), tmp_path / "whole")
    whole = backtest(
        str(path), rule_sets.side("whole", Settings(), bundle), tmp_path / "run", lambda what, share: None
    )
    until = T0 + 1700
    quick = model.run({"orin": turns.events(cell, 1)}, until)
    both = {one.rule.name for one in whole.verdicts if one.standing is Standing.JUDGED}
    told = [one for one in quick.verdicts if one.rule.name in both]
    found = set(lives(told, until))
    assert found == set(lives(whole.verdicts, until))
    assert {name for name, _, _, fired, _ in found if fired is not None} >= {"TokenRTT", "TurnsOutOfSync"}


def test_a_day_within_the_objectives_calls_nobody(model):
    """3 % late answers, two in a row."""
    cell = Cell("day", listeners=2, late=page.OBJECTIVE, pattern="pairs")
    found = model.run({"orin": turns.events(cell, 1)}, T0 + DAY_S)
    assert page.counted(found.of("orin")).called == ()


def test_a_fault_calls_somebody_as_soon_and_as_often_as_the_page_says(model):
    promised = page.promised((DOCS / "noise.md").read_text(encoding="utf-8"))
    worse = [
        f"{fault.words}, {fault.traffic}: {after}, {incidents} incident; now {paged}"
        for fault, paged in page.run_faults(model)
        for after, incidents in [promised[fault.words, fault.traffic]]
        if after != page.NEVER
        and (
            paged.after_s is None
            or paged.after_s > float(after.removesuffix(" min")) * page.MINUTE + 6
            or paged.incidents > incidents
        )
    ]
    assert not worse, "make noise"
    assert len(promised) == len(page.faults())


def test_the_cells_talk_as_much_as_they_say():
    cell = Cell("a", listeners=2)
    asked = sum(type(event).__name__ == "TurnStart" for event in turns.events(cell, 2))
    assert asked == pytest.approx(2 * 2 * cell.answers_a_day, rel=0.05)
    assert cell.answers_a_day == 16 * HOUR_S / 60
