"""Run a whole benchmark: clients, schedule, watches, and the result they make. Clock and transport are passed in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from omniwatch import __version__
from omniwatch.desk.chain import PARTS, Chain, ChainError, Result, Turn
from omniwatch.desk.chain.calls import Calls, Server, served_model
from omniwatch.desk.chain.cascade import Cascade
from omniwatch.desk.chain.kv import KvWatch
from omniwatch.desk.chain.native import Native
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.chain.run import Client, run, turns_at_once
from omniwatch.desk.chain.schedule import plan
from omniwatch.desk.chain.watch import Watch
from omniwatch.desk.probe import TurnFailedError


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. `servers` has native, or asr, llm and tts, or all four."""

    servers: Mapping[str, Server]
    questions: Sequence[Asked]
    levels: Sequence[int] = (1,)
    turns: int = 30
    warmup: int = 2
    seed: int = 1
    buffer_ms: float = 80.0
    timeout_s: float = 30.0
    pictures: bool = True
    tts_rate_hz: float = 24_000.0
    interrupt_s: float | None = None

    @property
    def chains(self) -> list[Chain]:
        """The chains that are asked."""
        found: list[Chain] = []
        if "native" in self.servers:
            found.append("native")
        if "asr" in self.servers:
            found.append("cascade")
        return found


async def measure(
    wanted: Wanted,
    *,
    clock: Callable[[], float],
    began: str,
    machine: dict[str, str | int | None],
    watch: Watch | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    done: Callable[[Turn, bool], None] = lambda turn, warmup: None,
) -> Result:
    """Measure and return the result. Raises ChainError where a server cannot be reached at all."""
    # A proxy of the environment would be measured along with the servers.
    client = httpx.AsyncClient(transport=transport, timeout=None, trust_env=False, limits=_limits(wanted))
    async with client:
        calls = Calls(client, clock, wanted.timeout_s)
        for server in wanted.servers.values():
            try:
                server.model = server.model or await served_model(calls, server)
            except TurnFailedError as error:
                raise ChainError(f"--{server.part} {server.url}: cannot reach it: {error}") from error
        clients = _clients(calls, wanted)
        blocks = plan(
            wanted.chains,
            wanted.levels,
            wanted.turns,
            len(wanted.questions),
            wanted.warmup,
            wanted.seed,
            turns_at_once(wanted.interrupt_s),
        )
        kv = KvWatch(client, [(PARTS[part], s.url) for part, s in wanted.servers.items()])
        # A made-up transport has no metrics, and its clock stands still while nothing is due.
        looking = asyncio.ensure_future(kv.run()) if transport is None else None
        try:
            with watch or contextlib.nullcontext():
                found = await run(
                    clients,
                    blocks,
                    wanted.questions,
                    calls,
                    wanted.buffer_ms / 1000.0,
                    done,
                    wanted.interrupt_s,
                )
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
    counts: dict[Chain, int] = {c: sum(t.chain == c for t in found.turns) for c in wanted.chains}
    return Result(
        tool=f"omniwatch {__version__}",
        began=began,
        seed=wanted.seed,
        machine=machine,
        servers={part: server.url for part, server in wanted.servers.items()},
        models={part: server.model for part, server in wanted.servers.items()},
        settings=_settings(wanted),
        questions=[asked.described() for asked in wanted.questions],
        levels=found.levels,
        turns=found.turns,
        memory=watch.memory(kv.unused) if watch else [],
        devices=watch.devices(found.levels, counts, found.began_t) if watch else [],
        kv=sorted(kv.found.values(), key=lambda one: (one.chain, one.url)),
    )


def _clients(calls: Calls, wanted: Wanted) -> dict[Chain, Client]:
    servers = wanted.servers
    clients: dict[Chain, Client] = {}
    if "native" in servers:
        clients["native"] = Native(calls, servers["native"])
    if "asr" in servers:
        clients["cascade"] = Cascade(
            calls,
            servers["asr"],
            servers["llm"],
            servers["tts"],
            pictures=wanted.pictures,
            tts_rate_hz=wanted.tts_rate_hz,
        )
    return clients


def _limits(wanted: Wanted) -> httpx.Limits:
    # Each client has one connection for each server, kept between turns as a client at work would.
    return httpx.Limits(max_connections=None, max_keepalive_connections=4 * max(wanted.levels) + 4)


def _settings(wanted: Wanted) -> dict[str, Any]:
    return {
        "levels": list(wanted.levels),
        "turns": wanted.turns,
        "warmup": wanted.warmup,
        "buffer_ms": wanted.buffer_ms,
        "timeout_s": wanted.timeout_s,
        "pictures": wanted.pictures,
        "tts_rate_hz": wanted.tts_rate_hz,
        "interrupt_s": wanted.interrupt_s,
        "bodies": {part: dict(server.body) for part, server in wanted.servers.items() if server.body},
    }
