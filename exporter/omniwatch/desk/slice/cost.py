"""What a cut costs, from what was measured of each token: means over answers with 95 % intervals, and one table. Pure.

Answers are drawn, tokens within one are not: so each figure is a ratio of sums over answers, and its interval is Student's, by the
answers' deviations from the ratio (Cochran, Sampling Techniques, section 6.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from omniwatch.desk.plan.plan_text import table

NOT_QUALITY = (
    "This is agreement with the original on the original's own answers, not quality: a model that says the same in other words "
    "disagrees, and one whose voice broke may agree."
)
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantile for 1 to 9 degrees of freedom."""
_NORMAL = 1.959964


class Tokens(NamedTuple):
    """Sums over the tokens of one answer. Natural logarithms."""

    size: int
    divergence: float
    """Kullback-Leibler divergence of the cut model's next token from the original's."""
    same: int
    """Tokens whose likeliest next token is the same."""
    surprise: float
    """Negative logarithm of what the original gives to what was said."""
    surprise_cut: float


class Figure(msgspec.Struct, frozen=True):
    """A mean over all tokens. `low` and `high`: its 95 % interval; null with fewer than two answers."""

    value: float
    low: float | None = None
    high: float | None = None


class Agreement(msgspec.Struct, frozen=True):
    """How far the cut model agrees with the original, in one part."""

    answers: int
    tokens: int
    divergence: Figure
    same_choice: Figure
    perplexity: Figure
    perplexity_cut: Figure


class Lost(msgspec.Struct, frozen=True):
    """The share of a layer's routed weight that went, in the original, to experts that are gone."""

    part: str
    layer: int
    share: float


class Words(msgspec.Struct, frozen=True):
    """What speech recognition understood of the answers, by their own text. `rate`: word errors by words."""

    answers: int
    words: int
    rate: Figure
    failed: int = 0
    """Answers without a transcript."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What `slice compare` found."""

    schema: int = 1
    model_sha256: str
    """Digest of the original's config.json."""
    keep_sha256: str
    answers_sha256: str
    parts: dict[str, Agreement]
    lost: list[Lost]
    words: Words | None = None
    words_cut: Words | None = None
    note: str = NOT_QUALITY


def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution (its expansion in 1/freedom beyond the table)."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def ratio(
    sums: Sequence[float], counts: Sequence[int], least: float = -math.inf, most: float = math.inf
) -> Figure:
    """Return the sum of all by the count of all, with its interval, cut at what the figure cannot pass."""
    whole = sum(counts)
    value = sum(sums) / whole
    n = len(sums)
    if n < 2:
        return Figure(value)
    spread = sum((one - value * count) ** 2 for one, count in zip(sums, counts, strict=True))
    half = student(n - 1) * math.sqrt(n / (n - 1) * spread) / whole
    return Figure(value, max(least, value - half), min(most, value + half))


def agreement(answers: Sequence[Tokens]) -> Agreement:
    """Return what the answers' tokens say of one part."""
    counts = [one.size for one in answers]
    return Agreement(
        len(answers),
        sum(counts),
        ratio([one.divergence for one in answers], counts, least=0.0),
        ratio([one.same for one in answers], counts, least=0.0, most=1.0),
        _exp(ratio([one.surprise for one in answers], counts)),
        _exp(ratio([one.surprise_cut for one in answers], counts)),
    )


def words(errors: Sequence[int], counts: Sequence[int], failed: int) -> Words | None:
    """Return the word error rate of answers that have words; None where none has."""
    if not sum(counts):
        return None
    return Words(len(counts), sum(counts), ratio(errors, counts, least=0.0), failed)


def with_words(cost: Cost, whole: Words, cut: Words) -> Cost:
    """Return it with the word error rates of the original's speech and of the cut model's."""
    return msgspec.structs.replace(cost, words=whole, words_cut=cut)


def as_json(cost: Cost) -> str:
    """Return it as JSON."""
    return msgspec.json.format(msgspec.json.encode(cost), indent=1).decode()


def lines(cost: Cost) -> list[str]:
    """Return the table as a terminal shows it."""
    found = table(_rows(cost))
    return [*found, "", *table(_lost(cost)), "", cost.note]


def markdown(cost: Cost) -> list[str]:
    """Return the table as the card has it."""
    found = []
    for rows in (_rows(cost), _lost(cost)):
        head, *rest = rows
        found += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        found += [f"| {' | '.join(row)} |" for row in rest]
    return [cost.note, *found, ""]


def _rows(cost: Cost) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("part", "figure", "original", "cut", "95 % interval", "of")]
    for part, one in cost.parts.items():
        of = f"{one.tokens} tokens, {one.answers} answers"
        rows += [
            (
                part,
                "KL of the next token, nats",
                "",
                _number(one.divergence.value),
                _interval(one.divergence),
                of,
            ),
            (part, "same first choice", "", f"{one.same_choice.value:.1%}", _shares(one.same_choice), of),
            (
                part,
                "perplexity",
                f"{_number(one.perplexity.value)} ({_interval(one.perplexity)})",
                _number(one.perplexity_cut.value),
                _interval(one.perplexity_cut),
                of,
            ),
        ]
    for name, spoken in (("original", cost.words), ("cut", cost.words_cut)):
        if spoken is not None:
            value = f"{spoken.rate.value:.1%}"
            failed = f", {spoken.failed} failed" if spoken.failed else ""
            of = f"{spoken.words} words, {spoken.answers} answers{failed}"
            both = (value, "") if name == "original" else ("", value)
            rows.append(("speech", "word error rate by its own text", *both, _shares(spoken.rate), of))
    return rows


def _lost(cost: Cost) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("part", "layer", "routed weight that went to experts now gone")]
    return rows + [(one.part, str(one.layer), f"{one.share:.1%}") for one in cost.lost]


def _exp(figure: Figure) -> Figure:
    low, high = (None if end is None else math.exp(min(end, 700)) for end in (figure.low, figure.high))
    return Figure(math.exp(min(figure.value, 700)), low, high)


def _number(value: float) -> str:
    return f"{value:.3g}"


def _shares(figure: Figure) -> str:
    return _interval(figure, ".1%")


def _interval(figure: Figure, form: str = ".3g") -> str:
    if figure.low is None or figure.high is None:
        return "too few answers"
    return f"{figure.low:{form}} to {figure.high:{form}}"
