"""Clients at the listener's end that pause between their turns: `python pausing.py PLAN`; prints a line (JSON) a question."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from omniwatch.client import Client, Config, TurnCallbacks


class Pausing(msgspec.Struct):
    """Who pauses, for how long, and how many at once. `program` is the C++ client's (tests/data/warm.cpp); "" is Python's."""

    url: str
    warm_s: float
    pauses_s: list[float]
    clients: int
    spread_s: float
    """Over this time they begin, so that their turns do not meet."""
    program: str = ""


class First(msgspec.Struct):
    """A question: the pause before it (0 for a client's first), and how long its first speech took."""

    pause_s: float
    ms: float
    reason: str


class Ear(TurnCallbacks):
    """Notes the first speech."""

    def __init__(self) -> None:
        self.first_at: float | None = None

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        if self.first_at is None:
            self.first_at = asyncio.get_running_loop().time()


async def by_python(plan: Pausing) -> list[First]:
    """Ask after each pause, all by one client."""
    ear, found = Ear(), []
    client = Client(plan.url, ear, config=Config(warm_s=plan.warm_s, report=plan.warm_s > 0))
    for pause_s in (0.0, *plan.pauses_s):
        await asyncio.sleep(pause_s)
        ear.first_at, asked_at = None, asyncio.get_running_loop().time()
        summary = await client.speak({"modalities": ["audio"], "messages": []})
        found.append(First(pause_s, ((ear.first_at or asked_at) - asked_at) * 1000, summary.reason))
    await client.close()
    return found


async def by_cpp(plan: Pausing) -> list[First]:
    """Do the same with the C++ client."""
    pauses = ",".join(f"{pause_s:g}" for pause_s in plan.pauses_s)
    process = await asyncio.create_subprocess_exec(
        plan.program, plan.url, pauses, f"{plan.warm_s:g}", stdout=asyncio.subprocess.PIPE
    )
    said = (await process.communicate())[0].decode().splitlines()
    rows = [line.rsplit(" ", 1) for line in said]
    return [
        First(pause_s, float(ms), reason)
        for pause_s, (reason, ms) in zip((0.0, *plan.pauses_s), rows, strict=True)
    ]


async def main(plan: Pausing) -> None:
    """Run all clients, and print what they found."""

    async def one(number: int) -> list[First]:
        await asyncio.sleep(number * plan.spread_s / plan.clients)
        return await (by_cpp if plan.program else by_python)(plan)

    for found in await asyncio.gather(*(one(number) for number in range(plan.clients))):
        for first in found:
            sys.stdout.write(msgspec.json.encode(first).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Pausing)))
