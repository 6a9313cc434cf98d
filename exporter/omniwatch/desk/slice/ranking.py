"""Order a layer's experts by their scores, kind of input by kind of input. Pure.

An expert that only pictures need has a low score over all tokens, and a high one over those of pictures. So each kind of input ranks
the experts by itself, and the best of an expert's ranks is the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MODALITIES = ("speech", "picture", "text")
"""Kinds of input that a token may stand for."""


def ranks(scores: Sequence[float], counts: Sequence[int]) -> list[int]:
    """Return each expert's rank from 0, equal scores by number; one that no token took has the last rank of all."""
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    found = [len(scores)] * len(scores)
    for rank, number in enumerate(order):
        if counts[number]:
            found[number] = rank
    return found


def order(scores: Mapping[str, Sequence[float]], counts: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the experts' numbers, the one to keep first in front: by the best of their ranks, ties by number."""
    by_kind = [ranks(scores[kind], counts[kind]) for kind in scores]
    best = [min(found) for found in zip(*by_kind, strict=True)]
    return sorted(range(len(best)), key=lambda number: (best[number], number))
