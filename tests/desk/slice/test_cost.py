"""What `slice compare` makes of sums over tokens: figures, intervals, one table."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from omniwatch.cli import main
from omniwatch.desk.slice import card, cost
from omniwatch.desk.slice.cost import Cost, Lost, Tokens
from omniwatch.system import needed


def of(answers: list[Tokens], lost: list[Lost] | None = None) -> Cost:
    found = {"thinker": cost.agreement(answers)}
    return Cost(model_sha256="a", keep_sha256="b", answers_sha256="c", parts=found, lost=lost or [])


def test_figures_are_means_over_tokens() -> None:
    found = cost.agreement([Tokens(10, 1.0, 9, 20.0, 30.0), Tokens(30, 5.0, 15, 20.0, 50.0)])
    assert (found.answers, found.tokens) == (2, 40)
    assert found.divergence.value == pytest.approx(6 / 40)
    assert found.same_choice.value == pytest.approx(24 / 40)
    assert found.perplexity.value == pytest.approx(2.718281828)
    assert found.perplexity_cut.value == pytest.approx(7.389056099)


def test_a_figure_stays_within_what_it_can_be() -> None:
    found = cost.agreement([Tokens(10, 0.0, 10, 1.0, 1.0), Tokens(10, 9.0, 1, 1.0, 1.0)])
    assert found.divergence.low == 0.0
    assert (found.same_choice.low, found.same_choice.high) == (0.0, 1.0)


def test_one_answer_has_no_interval() -> None:
    found = of([Tokens(10, 1.0, 9, 20.0, 30.0)])
    assert found.parts["thinker"].divergence.low is None
    assert "too few answers" in "\n".join(cost.lines(found))


@pytest.mark.parametrize("answers", [2, 5, 30])
def test_intervals_hold_what_they_promise(answers: int) -> None:
    """Answers of several lengths, whose own means are drawn around 2: the interval has it in 95 of 100."""
    draw = random.Random(answers)
    held, rounds = 0, 2000
    for _ in range(rounds):
        sizes = [draw.randint(20, 40) for _ in range(answers)]
        sums = [size * draw.gauss(2.0, 0.5) for size in sizes]
        found = cost.ratio(sums, sizes)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 2.0 <= found.high
    # Three standard errors of the share of 2,000 rounds are 1.5 %.
    assert 0.93 <= held / rounds <= 0.97


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (9, 2.262), (10, 2.228), (30, 2.042), (1000, 1.962)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert cost.student(freedom) == pytest.approx(quantile, abs=1e-3)


def test_the_table_names_each_layer_and_the_card_takes_it() -> None:
    found = of([Tokens(10, 1.0, 9, 20.0, 30.0)] * 3, [Lost("thinker", 0, 0.25), Lost("thinker", 1, 0.0)])
    printed = "\n".join(cost.lines(found))
    for part in ("KL of the next token", "same first choice", "perplexity", "25.0%", "not quality"):
        assert part in printed
    before = f"# a\n{card.BEGIN}\n{card.NOT_COMPARED}\n{card.END}\n## Files written\n"
    first = card.with_comparison(before, cost.markdown(found))
    assert first is not None
    assert "| thinker | 0 | 25.0% |" in first
    assert card.NOT_COMPARED not in first
    # A second comparison takes the place of the first.
    assert card.with_comparison(first, cost.markdown(found)) == first
    assert card.with_comparison("# another page", cost.markdown(found)) is None
    assert json.loads(cost.as_json(found))["lost"][0] == {"part": "thinker", "layer": 0, "share": 0.25}


@pytest.mark.parametrize(
    "command", [["score", "m", "q", "--out", "o"], ["compare", "m", "o", "q", "--answers", "s"]]
)
def test_without_torch_one_line_says_what_to_install(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needed, "is_there", lambda name: name != "torch")
    done = CliRunner().invoke(main, ["slice", *command])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: slice {command[0]} needs torch: pip install 'omniwatch[slice]'\n"
