"""Ask the turns of a schedule, so many at once, and collect what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    interrupt_s: float | None = None,
) -> Run:
    """Ask everything. `done` is called with each turn, and whether it was warm-up, which the result leaves out.

    With `interrupt_s`, every other turn of a client is broken off so long after its first speech, and the next asked at once.
    """
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
                in_a_row = [waiting.pop() for _ in range(min(turns_at_once(interrupt_s), len(waiting)))]
                follows_break = False
                for number, place in in_a_row:
                    asked, is_last = questions[place], number == in_a_row[-1][0]
                    line = Timeline(buffer_s, clock(), follows_break=follows_break)
                    talking = _talk(clients[block.chain], asked, line, None if is_last else interrupt_s)
                    how = await _outcome(talking)
                    line.end_t = clock()
                    turn = line.turn(block.chain, block.concurrency, number, asked.name, found.began_t, *how)
                    turns.append(turn)
                    done(turn, number < 0)
                    follows_break = turn.is_broken_off

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


def turns_at_once(interrupt_s: float | None) -> int:
    """Return how many turns a client asks in a row."""
    return 1 if interrupt_s is None else 2


async def _talk(client: Client, asked: Asked, line: Timeline, interrupt_s: float | None) -> None:
    """Have a turn, and break it off so long after its first speech, where that is asked for."""
    if interrupt_s is None:
        await client.turn(asked, line)
        return
    loop = asyncio.get_running_loop()
    talking = asyncio.ensure_future(client.turn(asked, line))

    def break_off() -> None:
        line.is_broken_off = talking.cancel()

    line.on_first_audio = lambda: loop.call_later(interrupt_s, break_off)
    try:
        await talking
        # It was over just then.
        line.is_broken_off = False
    except asyncio.CancelledError:
        if not line.is_broken_off:
            raise


async def _outcome(talking: Coroutine[Any, Any, None]) -> tuple[str, str | None, str | None]:
    """Have a turn; return how it went, in more words, and which part failed."""
    try:
        with anyio.fail_after(MAX_TURN_S):
            await talking
    except TurnFailedError as error:
        return error.outcome, str(error), getattr(error, "part", "native")
    except TimeoutError:
        return "timeout", f"the turn went on for more than {MAX_TURN_S:g} s", None
    return "ok", None, None
