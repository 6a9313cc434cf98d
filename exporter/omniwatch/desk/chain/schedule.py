"""Decide which turns are asked, in which order, from the seed alone. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from omniwatch.desk.chain import Chain

TURNS_A_CLIENT = 4
"""Turns of each client in a block, where several ask at once: fewer would measure its two ends, at which clients wait."""


class Block(NamedTuple):
    """Turns of one chain, `concurrency` clients at once. `first` is the number of its first turn; below 0: warm-up."""

    chain: Chain
    concurrency: int
    first: int
    questions: tuple[int, ...]


def plan(
    chains: Sequence[Chain],
    levels: Sequence[int],
    turns: int,
    questions: int,
    warmup: int,
    seed: int,
    at_once: int = 1,
) -> list[Block]:
    """Return the blocks of a run: for each level the warm-up of each chain, then pairs of blocks, one of each chain.

    A client asks `at_once` turns in a row, with nothing of the other chain in between. Which chain of a pair is first is
    drawn, so that a machine that slows down slows both. Both chains of a pair ask the same questions; each question is asked
    once before any is asked again.
    """
    draw = random.Random(seed)
    blocks: list[Block] = []
    for level in levels:
        order = _order(draw, turns, questions)
        blocks += [
            Block(chain, level, -warmup, tuple(i % questions for i in range(warmup)))
            for chain in chains
            if warmup
        ]
        size = at_once if level == 1 else level * TURNS_A_CLIENT
        for first in range(0, turns, size):
            pair = list(chains)
            draw.shuffle(pair)
            blocks += [Block(chain, level, first, order[first : first + size]) for chain in pair]
    return blocks


def _order(draw: random.Random, turns: int, questions: int) -> tuple[int, ...]:
    order: list[int] = []
    while len(order) < turns:
        order += draw.sample(range(questions), questions)
    return tuple(order[:turns])
