"""The relay: every byte once and in order while a connection lives, nothing said when it dies silently."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from omniwatch import frames
from omniwatch.client.http import Response
from omniwatch.desk.link import memory
from omniwatch.desk.link import scenario as scenarios
from omniwatch.desk.link.framed import Framed
from omniwatch.desk.link.path import Blackout, Gilbert, Link
from omniwatch.desk.link.relay import Relay
from omniwatch.desk.link.scenario import Cuts, FrameTrouble, Loss, Outage, Scenario
from omniwatch.desk.link.virtual import run, spawn
from omniwatch.frames import Kind

Echo = Callable[[memory.End], Coroutine[Any, Any, None]]


async def echo(end: memory.End) -> None:
    """Say back what is said, and close after it."""
    try:
        while data := await end.read(10_000):
            end.write(data)
            await end.drain()
        end.close()
    except ConnectionError:
        end.reset()


def between(
    scenario: Scenario, seed: int = 1, server: Echo = echo
) -> tuple[Relay, memory.End, list[Blackout]]:
    told: list[Blackout] = []

    async def dial() -> memory.End:
        ours, theirs = memory.duplex()
        spawn(server(theirs))
        return ours

    relay = Relay(Link(scenario, seed), dial, lambda happening, dead: told.append(happening))
    spawn(relay.weather())
    client, near = memory.duplex()
    spawn(relay.carry(near))
    return relay, client, told


async def read_all(end: memory.End, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := await end.read(100_000)):
        data += more
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4g-10pct", "4g-bursty", "highway-120", "tunnel"])
def test_every_byte_once_and_in_order_under_every_scenario(name: str) -> None:
    async def main() -> None:
        scenario = scenarios.load(name)
        calm = Scenario(
            about="without cuts",
            rtt_ms=scenario.rtt_ms,
            jitter_ms=scenario.jitter_ms,
            down_kbit=scenario.down_kbit,
            up_kbit=scenario.up_kbit,
            loss=scenario.loss,
            outage=scenario.outage,
        )
        relay, client, _ = between(calm)
        said = random.Random(1).randbytes(3_000_000)

        async def say() -> None:
            for start in range(0, len(said), 30_000):
                client.write(said[start : start + 30_000])
                await client.drain()

        saying = asyncio.ensure_future(say())
        assert await read_all(client, len(said)) == said
        await saying
        assert relay.carried == {"up": len(said), "down": len(said)}
        client.close()

    run(main())


def test_a_round_trip_takes_what_the_scenario_says() -> None:
    async def main() -> None:
        _, client, _ = between(Scenario(about="", rtt_ms=100))
        loop = asyncio.get_running_loop()
        client.write(b"?")
        assert await client.read(10) == b"?"
        assert loop.time() == pytest.approx(0.1)

    run(main())


def test_the_end_of_a_direction_is_carried_after_its_bytes() -> None:
    async def main() -> None:
        async def farewell(end: memory.End) -> None:
            end.write(b"last words")
            end.close()

        _, client, _ = between(Scenario(about="", rtt_ms=100, loss=Loss(share=0.5)), server=farewell)
        assert await read_all(client, 1 << 20) == b"last words"

    run(main())


def test_a_reset_is_seen_at_once_by_both() -> None:
    async def main() -> None:
        server_saw = asyncio.Event()

        async def server(end: memory.End) -> None:
            try:
                await end.read(1)
            except ConnectionResetError:
                server_saw.set()

        _, client, told = between(Scenario(about="", cuts=Cuts(every_s=10, silent=0)), server=server)
        with pytest.raises(ConnectionResetError):
            await client.read(1)
        assert asyncio.get_running_loop().time() == pytest.approx(told[0].at)
        await asyncio.wait_for(server_saw.wait(), 1)

    run(main())


def test_a_silent_death_is_not_seen_and_a_new_connection_lives() -> None:
    async def main() -> None:
        scenario = Scenario(about="", rtt_ms=10, cuts=Cuts(every_s=10, silent=1))
        relay, client, told = between(scenario)
        await asyncio.sleep(30)
        assert told[0].cut == "silent"
        client.write(b"anybody?")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.read(10), told[0].at + 55 - 30)
        fresh, near = memory.duplex()
        spawn(relay.carry(near))
        fresh.write(b"hello")
        assert await asyncio.wait_for(fresh.read(10), 1) == b"hello"

    run(main())


def test_an_outage_holds_up_what_is_said_in_it() -> None:
    async def main() -> None:
        _, client, told = between(Scenario(about="", rtt_ms=60, outage=Outage(every_s=30, for_s=3)), seed=2)
        loop = asyncio.get_running_loop()
        while not told:
            await asyncio.sleep(0.1)
        client.write(b"?")
        await client.read(1)
        assert loop.time() >= told[0].at + 3

    run(main())


def test_a_server_that_is_not_there_resets_the_client() -> None:
    async def main() -> None:
        async def dial() -> memory.End:
            raise ConnectionRefusedError

        relay = Relay(Link(Scenario(about=""), 1), dial)
        client, near = memory.duplex()
        spawn(relay.carry(near))
        with pytest.raises(ConnectionResetError):
            await client.read(1)

    run(main())


def test_what_is_under_way_is_bounded_so_that_a_server_feels_a_slow_client() -> None:
    async def main() -> None:
        written = 0

        async def flood(end: memory.End) -> None:
            nonlocal written
            while written < 50_000_000:
                end.write(b"x" * 10_000)
                written += 10_000
                await end.drain()

        between(Scenario(about="", rtt_ms=100, down_kbit=1000), server=flood)
        await asyncio.sleep(5)
        assert written < 5 * 125_000 + 3_000_000

    run(main())


def framed_answer(count: int, *, chunked: bool) -> bytes:
    body = b"".join(
        frames.encode(i, b"%d" % i, kind=Kind.SPEECH) + frames.encode(i, b"text", kind=Kind.TEXT, part=1)
        for i in range(count)
    )
    head = b"HTTP/1.1 206 -\r\ncontent-type: application/vnd.omniwatch.frames\r\n"
    if chunked:
        return head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return head + b"content-length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("chunked", [True, False])
def test_frame_mode_drops_repeats_and_reorders_frames_of_speech_alone(chunked: bool) -> None:
    luck = random.Random(2)
    trouble = FrameTrouble(drop=Loss(share=0.1, burst=3), repeat=0.05, reorder=0.1, depth=4)
    framed = Framed(trouble, Gilbert(trouble.drop, luck), luck)
    wire, answer, out = framed_answer(2000, chunked=chunked), Response(), b""
    while wire:
        size = luck.randint(1, 3000)
        out += answer.feed(framed.feed(wire[:size]))
        wire = wire[size:]
    assert answer.done
    got = list(frames.Decoder().feed(out))
    assert all(frames.verify(frame) for frame in got)
    assert [f.frame_id for f in got if f.kind == Kind.TEXT] == list(range(2000))
    ids = [f.frame_id for f in got if f.kind == Kind.SPEECH]
    assert framed.dropped == pytest.approx(200, rel=0.4)
    assert len(set(ids)) == 2000 - framed.dropped
    assert len(ids) - len(set(ids)) == framed.repeated > 0
    late = sum(b < a for a, b in pairwise(ids))
    assert 0 < late <= framed.reordered
    assert max(a - b for a, b in pairwise(ids)) <= 4 + framed.dropped


@pytest.mark.parametrize("chunked", [True, False])
def test_frame_mode_closes_the_connection_after_the_answer_it_changed(chunked: bool) -> None:
    luck = random.Random(2)
    framed = Framed(FrameTrouble(), Gilbert(Loss(), luck), luck)
    wire = framed_answer(3, chunked=chunked).replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1)
    out = framed.feed(wire)
    answer = Response()
    assert len(list(frames.Decoder().feed(answer.feed(out)))) == 6
    assert answer.headers["connection"] == "close"
    assert out.lower().count(b"\r\nconnection:") == out.lower().count(b"\r\ntransfer-encoding:") == 1
    assert out.count(b"0\r\n\r\n") == 1
    assert framed.feed(framed_answer(3, chunked=chunked)) == b"", "one answer a connection"


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_frame_mode_leaves_other_answers_alone(kind: bytes) -> None:
    luck = random.Random(2)
    trouble = FrameTrouble(drop=Loss(share=0.9))
    framed = Framed(trouble, Gilbert(trouble.drop, luck), luck)
    wire = b"HTTP/1.1 200 -\r\ncontent-type: " + kind + b"\r\n\r\n" + b"data: 1\n\n" * 100
    assert b"".join(framed.feed(wire[i : i + 7]) for i in range(0, len(wire), 7)) == wire
