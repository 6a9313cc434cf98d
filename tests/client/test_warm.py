"""The connection that is kept beside a turn's and after it: reports go by it, then the next question."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from helpers.keeping_server import CHAT, HANDSHAKE_S, OK, PING, REPORT, Asked, KeepingServer
from omniwatch.client import Client, Config, TurnCallbacks
from omniwatch.client.endpoint import Writer
from omniwatch.client.playout import Playout
from omniwatch.client.turn_report import TurnReport
from omniwatch.desk.link.virtual import run


def client_of(server: KeepingServer, **config: Any) -> Client:
    return Client("http://server", TurnCallbacks(), connect=server.connect, config=Config(**config))


def test_a_turn_is_reported_each_second_until_it_was_played_by_another_connection() -> None:
    async def main() -> None:
        # Two seconds of speech at once, and half a second of silence before the last two.
        server = KeepingServer([0.3] * 25 + [2.88] * 25)
        summary = await client_of(server).speak({})
        assert summary.reason == "done"
        await asyncio.sleep(10)
        chat, reports = server.of(CHAT)[0], server.of(REPORT)
        assert {asked.conn for asked in reports}.isdisjoint({chat.conn})
        assert len({asked.conn for asked in reports}) == 1
        said = [asked.body for asked in reports]
        assert [body.get("rtt_ms") for body in said] == [pytest.approx(300, abs=1)] + [None] * (len(said) - 1)
        assert {body["stream"] for body in said} == {"R" * 32}
        gaps = [after.t - before.t for before, after in pairwise(reports[1:])]
        assert gaps == pytest.approx([1.0] * len(gaps), abs=0.02)
        assert said[-1]["played_ms"] == pytest.approx(4000)
        # Heard from 0.38 s on, 80 ms of buffer; dry at 2.38; the rest came at 2.88.
        assert [body["underrun_ms"] for body in said[-2:]] == [pytest.approx(500, abs=1)] * 2
        assert reports[-1].t - chat.t == pytest.approx(0.38 + 2.0 + 0.5 + 2.0, abs=1.1)

    run(main())


def test_the_next_question_goes_by_that_connection_and_saves_a_handshake() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])
        client = client_of(server)
        took = []
        for _ in range(3):
            began = asyncio.get_running_loop().time()
            await client.speak({})
            took.append(server.of(CHAT)[-1].t - began)
            await asyncio.sleep(20)
        assert took == [pytest.approx(HANDSHAKE_S), pytest.approx(0.0), pytest.approx(0.0)]
        before = [asked for asked in server.asked if asked.t < server.of(CHAT)[1].t]
        assert before[-1].what == PING
        assert before[-1].conn == server.of(CHAT)[1].conn

    run(main())


@pytest.mark.parametrize(("stated", "each_s"), [("", 15), ("keep-alive: timeout=6, max=100\r\n", 2)])
def test_something_small_is_asked_so_often_for_so_long(stated: str, each_s: float) -> None:
    async def main() -> None:
        server = KeepingServer([0.3], ping=OK + stated.encode())
        await client_of(server).speak({})
        over_at = asyncio.get_running_loop().time()
        await asyncio.sleep(300)
        pings = [asked.t for asked in server.of(PING)]
        assert len({asked.conn for asked in server.of(PING)}) == 1
        # The first answer states how long the server waits.
        gaps = [after - before for before, after in pairwise(pings[1:])]
        assert gaps == pytest.approx([each_s] * len(gaps), abs=1.1)
        assert pings[-1] - over_at == pytest.approx(120, abs=each_s + 2)
        assert not server.open, "it is closed in the end"

    run(main())


def test_a_ping_without_an_answer_for_two_seconds_replaces_the_connection() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])
        client = client_of(server)
        await client.speak({})
        await asyncio.sleep(5)
        server.on_asked = lambda asked, end: asked.what == PING and len(server.of(PING)) == 1
        await asyncio.sleep(30)
        first, second = server.of(PING)[:2]
        assert first.conn != second.conn
        assert second.t - first.t == pytest.approx(2 + HANDSHAKE_S, abs=1.1)
        assert first.conn not in server.open
        await client.speak({})
        assert server.of(CHAT)[-1].conn == second.conn

    run(main())


def test_a_question_that_meets_a_closed_connection_is_asked_again_once_on_a_new_one() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])
        client = client_of(server)
        await client.speak({})
        await asyncio.sleep(5)

        def close(asked: Asked, end: Writer) -> bool:
            if asked.what == CHAT and len(server.of(CHAT)) == 2:
                end.close()
            return asked.what == CHAT and len(server.of(CHAT)) == 2

        server.on_asked = close
        assert (await client.speak({})).reason == "done"
        _, met, again = server.of(CHAT)
        assert again.conn > met.conn
        assert again.t - met.t == pytest.approx(HANDSHAKE_S), (
            "at once, for nothing was wrong with the network"
        )

    run(main())


def test_a_server_that_closes_the_connection_is_asked_to_keep_no_other() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])

        def close(asked: Asked, end: Writer) -> bool:
            if asked.what == PING:
                end.write(OK + b"\r\n")
                asyncio.get_running_loop().call_later(5, end.close)
            return asked.what == PING

        server.on_asked = close
        client = client_of(server, report=False)
        await client.speak({})
        connections = server.connections
        await asyncio.sleep(60)
        assert len(server.of(PING)) == 1
        assert server.connections == connections + 1
        assert (await client.speak({})).reason == "done"

    run(main())


def test_a_server_that_says_it_will_close_is_asked_once() -> None:
    async def main() -> None:
        server = KeepingServer([0.3], ping=OK + b"connection: close\r\n")
        await client_of(server, report=False).speak({})
        await asyncio.sleep(60)
        assert len(server.of(PING)) == 1

    run(main())


@pytest.mark.parametrize("status", [404, 405, 413])
def test_reports_stop_where_the_server_does_not_take_them(status: int) -> None:
    async def main() -> None:
        server = KeepingServer([0.1 * number for number in range(60)])
        server.report = f"HTTP/1.1 {status} -\r\ncontent-length: 0\r\n".encode()
        await client_of(server).speak({})
        await asyncio.sleep(5)
        assert len(server.of(REPORT)) == 1

    run(main())


def test_a_refused_report_is_repeated_with_all_that_it_had() -> None:
    async def main() -> None:
        server = KeepingServer([0.05 * number for number in range(60)])

        def refuse(asked: Asked, end: Writer) -> bool:
            if asked.what == REPORT and len(server.of(REPORT)) == 1:
                end.write(b"HTTP/1.1 409 -\r\ncontent-length: 3\r\n\r\nno\n")
                return True
            return False

        server.on_asked = refuse
        await client_of(server).speak({})
        first, second, third = [asked.body for asked in server.of(REPORT)[:3]]
        assert first["rtt_ms"] == second["rtt_ms"]
        assert "rtt_ms" not in third

    run(main())


def test_a_client_may_keep_to_itself() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])
        await client_of(server, report=False, warm_s=0).speak({})
        await asyncio.sleep(300)
        assert {asked.what for asked in server.asked} == {CHAT}
        assert not server.open

    run(main())


def test_a_client_that_is_closed_leaves_no_connection() -> None:
    async def main() -> None:
        server = KeepingServer([0.3])
        client = client_of(server)
        await client.speak({})
        await asyncio.sleep(5)
        assert server.open
        await client.close()
        await asyncio.sleep(1)
        assert not server.open

    run(main())


def test_another_address_of_the_clients_replaces_the_connection() -> None:
    """The kernel would send from 127.0.0.1; the connection came from 127.0.0.5, as before a handover."""
    peers: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while (line := await reader.readline()) not in (b"\r\n", b""):
                del line
            if head.startswith(b"POST /v1/chat"):
                break
            peers.append(writer.get_extra_info("peername")[0])
            writer.write(OK + b"\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        addresses = ["127.0.0.5", "127.0.0.1"]

        async def connect() -> Any:
            ours = addresses[1] if peers else addresses[0]
            return await asyncio.open_connection("127.0.0.1", port, local_addr=(ours, 0))

        client = Client("http://server", TurnCallbacks(), connect=connect, config=Config(give_up_s=0.1))
        await client.speak({})
        while len(peers) < 2:
            await asyncio.sleep(0.05)
        await client.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert peers == ["127.0.0.5", "127.0.0.1"]


def report_of(playout: Playout) -> TurnReport:
    report = TurnReport(playout)
    report.asked(0.0)
    report.begin("R" * 32)
    return report


def test_no_more_underrun_is_said_than_has_passed_since_the_last_answer() -> None:
    playout = Playout(0.08)
    report = report_of(playout)
    playout.add(0.5, 1.0)
    report.heard(0.5)
    assert report.body(0.5)["underrun_ms"] == 0
    report.answered(2.5, 204)
    # Dry since 1.58 s: 1.42 s by now, of which 0.5 since the answer.
    assert report.body(3.0)["underrun_ms"] == pytest.approx(500)
    report.answered(3.1, 204)
    assert report.body(4.0)["underrun_ms"] == pytest.approx(1400)


@pytest.mark.parametrize("shift_ms", [-300.0, 200.0])
def test_a_correction_moves_no_playhead_for_the_server_has_it_from_the_realignment(shift_ms: float) -> None:
    playout = Playout(0.08)
    playout.add(0.0, 4.0)
    before = playout.played_s(1.0)
    assert playout.shift(1.0, shift_ms) == pytest.approx(shift_ms)
    assert playout.played_s(1.0) == pytest.approx(before)
    assert playout.played_s(1.4) == pytest.approx(before + 0.4)


@pytest.mark.parametrize("stream", ["", "short", "x" * 65, 'R" , "turn": "other', "R" * 15 + "\n"])
def test_an_odd_id_is_not_reported_under(stream: str) -> None:
    report = TurnReport(Playout(0.08))
    report.begin(stream)
    report.heard(1.0)
    assert report.due_at is None
