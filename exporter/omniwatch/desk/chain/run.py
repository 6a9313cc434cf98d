"""Ask the turns of a schedule, so many at once, and collect what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from omniwatch.desk.chain import Chain, Level, Turn
from omniwatch.desk.chain.calls import Calls
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.chain.schedule import Block
from omniwatch.desk.chain.timeline import Timeline
from omniwatch.desk.probe import TurnFailedError

MAX_TURN_S = 1200.0
"""Longest time of one turn, with all that its servers send."""


class Client(Protocol):
    """One chain, as a client talks to it."""

    async def turn(self, asked: Asked, line: Timeline) -> None:
        """Ask and listen to the end. Raises TurnFailedError for all that servers and the network do."""


@dataclass
class Run:
    """What has been measured; times are seconds after `began_t`."""

    began_t: float
    turns: list[Turn] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)


async def run(
    clients: Mapping[Chain, Client],
    blocks: Sequence[Block],
    questions: Sequence[Asked],
    calls: Calls,
    buffer_s: float,
    done: Callable[[Turn, bool], None],
) -> Run:
    """Ask everything. `done` is called with each turn, and whether it was warm-up, which the result leaves out."""
    clock = calls.clock
    found = Run(clock())
    for block in blocks:
        waiting = list(enumerate(block.questions, block.first))[::-1]
        turns: list[Turn] = []
        began_t = clock()

        async def ask(
            block: Block = block, waiting: list[tuple[int, int]] = waiting, turns: list[Turn] = turns
        ) -> None:
            while waiting:
                number, question = waiting.pop()
                turn = await _turn(
                    clients[block.chain], block, number, questions[question], clock, buffer_s, found.began_t
                )
                turns.append(turn)
                done(turn, number < 0)

        await asyncio.gather(*(ask() for _ in range(block.concurrency)))
        if block.first >= 0:
            found.turns += sorted(turns, key=lambda turn: turn.number)
            found.levels.append(
                Level(
                    chain=block.chain,
                    concurrency=block.concurrency,
                    start_s=round(began_t - found.began_t, 6),
                    end_s=round(clock() - found.began_t, 6),
                )
            )
    return found


async def _turn(
    client: Client,
    block: Block,
    number: int,
    asked: Asked,
    clock: Callable[[], float],
    buffer_s: float,
    run_t: float,
) -> Turn:
    line = Timeline(buffer_s, clock())
    outcome, detail, part = "ok", None, None
    try:
        with anyio.fail_after(MAX_TURN_S):
            await client.turn(asked, line)
    except TurnFailedError as error:
        outcome, detail = error.outcome, str(error)
        part = getattr(error, "part", "native")
    except TimeoutError:
        outcome, detail = "timeout", f"the turn went on for more than {MAX_TURN_S:g} s"
    line.end_t = clock()
    return line.turn(block.chain, block.concurrency, number, asked.name, run_t, outcome, detail, part)
