"""Work out a result's figures: percentiles with intervals by chain and concurrency. Pure.

A turn that failed before its first audio counts as one that never speaks: it stands behind every other in the order, so a
percentile that reaches such turns is "never". Leaving them out would make a server that fails look fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from omniwatch.desk.chain import CHAINS, Chain, Result, Turn
from omniwatch.desk.chain.statistics import PERCENTILES, Estimate, estimate, share_interval


class Quantity(NamedTuple):
    """A quantity of each turn, reported by its percentiles. `read` gives a turn's value, or None."""

    name: str
    words: str
    read: Callable[[Turn], float | None]
    never: bool = False
    """Whether a turn without it counts as infinitely late."""
    has: Callable[[Turn], bool] = lambda turn: True
    """Whether it is a quantity of that turn."""


def _rate(turn: Turn) -> float | None:
    return turn.audio_s / turn.end_s if turn.outcome == "ok" and turn.end_s and turn.audio_s else None


def _tokens(turn: Turn) -> float | None:
    return (turn.tokens - 1) / turn.text_s if turn.tokens and turn.tokens > 1 and turn.text_s else None


def _end(turn: Turn) -> float | None:
    return turn.end_s if turn.outcome == "ok" else None


def _underrun(turn: Turn) -> float | None:
    return turn.underrun_s if turn.first_audio_s is not None else None


def _is_undisturbed(turn: Turn) -> bool:
    return not turn.follows_break


def _is_whole(turn: Turn) -> bool:
    return not turn.is_broken_off


QUANTITIES = (
    Quantity("transcript_s", "transcript (s)", lambda turn: turn.transcript_s),
    Quantity("first_token_s", "first token (s)", lambda turn: turn.first_token_s),
    Quantity("first_sentence_s", "first sentence (s)", lambda turn: turn.first_sentence_s),
    Quantity(
        "first_audio_s", "first audio (s)", lambda turn: turn.first_audio_s, never=True, has=_is_undisturbed
    ),
    Quantity(
        "first_audio_after_break_s",
        "first audio after an interruption (s)",
        lambda turn: turn.first_audio_s,
        never=True,
        has=lambda turn: turn.follows_break,
    ),
    Quantity("end_s", "end (s)", _end, never=True, has=_is_whole),
    Quantity("underrun_s", "silence while speaking (s)", _underrun, has=_is_whole),
    Quantity("audio_rate", "audio seconds a second", _rate, has=_is_whole),
    Quantity("tokens_per_s", "text tokens a second", _tokens),
)
STEPS: dict[Chain, tuple[tuple[str, str | None, str], ...]] = {
    "native": (
        ("hear and think", None, "first_token_s"),
        ("begin to speak", "first_token_s", "first_audio_s"),
    ),
    "cascade": (
        ("ASR", None, "transcript_s"),
        ("LLM, first token", "transcript_s", "first_token_s"),
        ("LLM, first sentence", "first_token_s", "first_sentence_s"),
        ("TTS", "first_sentence_s", "first_audio_s"),
    ),
}
"""Where the time to the first audio goes: name, from, to."""


class Cell(NamedTuple):
    """Turns of one chain at one concurrency."""

    chain: Chain
    concurrency: int
    turns: list[Turn]
    asked_s: float
    """Seconds in which they were asked."""

    @property
    def failed(self) -> int:
        """Turns that were not spoken to their end."""
        return sum(turn.outcome != "ok" for turn in self.turns)

    @property
    def outcomes(self) -> dict[str, int]:
        """How the failed ones went: "cut (tts)" and the like."""
        found: dict[str, int] = {}
        for turn in self.turns:
            if turn.outcome != "ok":
                name = (
                    f"{turn.outcome} ({turn.part})" if turn.part and turn.part != "native" else turn.outcome
                )
                found[name] = found.get(name, 0) + 1
        return dict(sorted(found.items()))

    def values(self, quantity: Quantity) -> list[float]:
        """Return a figure of all turns that have it; of the others infinity where that is what it means."""
        found = [quantity.read(turn) for turn in self.turns if quantity.has(turn)]
        return [math.inf if v is None else v for v in found if v is not None or quantity.never]

    def estimate(self, quantity: Quantity, percent: float) -> Estimate:
        """Return one percentile of one figure."""
        return estimate(self.values(quantity), percent)

    def per_second(self) -> tuple[float | None, float | None]:
        """Return seconds of audio and text tokens a second, all clients together; None where nothing was counted."""
        if not self.asked_s:
            return None, None
        audio = sum(turn.audio_s for turn in self.turns)
        counted = [turn.tokens for turn in self.turns if turn.tokens is not None]
        return audio / self.asked_s, sum(counted) / self.asked_s if counted else None

    def steps(self) -> list[tuple[str, float]]:
        """Return the median seconds of each step to the first audio, of the turns that took all of them."""
        found = []
        for name, since, until in STEPS[self.chain]:
            spans = [
                (getattr(t, until) or 0.0) - (getattr(t, since) if since else 0.0)
                for t in self.turns
                if _is_undisturbed(t)
                and getattr(t, until) is not None
                and (since is None or getattr(t, since) is not None)
            ]
            if spans:
                found.append((name, estimate([max(0.0, s) for s in spans], 50).value or 0.0))
        return found


def cells(result: Result) -> list[Cell]:
    """Return the table's columns, by concurrency and chain."""
    found = []
    for level in sorted({turn.concurrency for turn in result.turns}):
        for chain in CHAINS:
            turns = [t for t in result.turns if (t.chain, t.concurrency) == (chain, level)]
            asked_s = sum(
                b.end_s - b.start_s for b in result.levels if (b.chain, b.concurrency) == (chain, level)
            )
            if turns:
                found.append(Cell(chain, level, turns, asked_s))
    return found


def summary(result: Result) -> list[dict[str, Any]]:
    """Return all figures for programs; "never" for a percentile among turns that never spoke, null for an open end."""
    found: list[dict[str, Any]] = []
    for cell in cells(result):
        low, high = share_interval(cell.failed, len(cell.turns))
        audio, tokens = cell.per_second()
        found.append(
            {
                "chain": cell.chain,
                "concurrency": cell.concurrency,
                "turns": len(cell.turns),
                "failed": cell.failed,
                "failed_share_interval": [round(low, 4), round(high, 4)],
                "outcomes": cell.outcomes,
                "audio_s_per_s": _plain(audio),
                "tokens_per_s": _plain(tokens),
                "steps_s": {name: _plain(value) for name, value in cell.steps()},
                "percentiles": {
                    quantity.name: {
                        f"p{percent}": {
                            "n": found_one.n,
                            "value": _plain(found_one.value),
                            "low": _plain(found_one.low),
                            "high": _plain(found_one.high),
                        }
                        for percent in PERCENTILES
                        for found_one in (cell.estimate(quantity, percent),)
                    }
                    for quantity in QUANTITIES
                    if cell.values(quantity)
                },
            }
        )
    return found


def _plain(value: float | None) -> float | str | None:
    if value is None:
        return None
    return "never" if math.isinf(value) else round(value, 6)
