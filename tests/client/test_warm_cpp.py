"""The C++ client's kept connection, over sockets."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.clients import compile_cpp
from helpers.keeping_server import CHAT, OK, PING, REPORT, Asked, KeepingServer
from helpers.paths import DATA
from omniwatch.client.endpoint import Writer

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("warm", tmp_path_factory.mktemp("cpp"), DATA)


def converse(program: Path, server: KeepingServer, pauses_s: str, warm_s: float, *more: str) -> list[str]:
    """Have a turn, and one after each pause; return how they ended."""

    async def main() -> list[str]:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            program, url, pauses_s, f"{warm_s:g}", *more, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        listener.close()
        return [line.split()[0] for line in said.decode().splitlines()]

    return asyncio.run(main())


@pytest.mark.parametrize("pieces", [1, 2])
def test_something_small_is_asked_until_it_is_time_and_the_question_goes_there(
    program: Path, pieces: int
) -> None:
    # The answer is in chunks, as that of an application which states no length.
    chunked = b"HTTP/1.1 404 -\r\ntransfer-encoding: chunked\r\nkeep-alive: timeout=3\r\n\r\n2\r\nno\r\n0\r\n"
    server = KeepingServer([0.1], report=OK + b"keep-alive: timeout=3\r\n")

    def answer_in_pieces(asked: Asked, end: Writer) -> bool:
        if asked.what == PING:
            end.write(chunked if pieces == 2 else chunked + b"\r\n")
            if pieces == 2:
                asyncio.get_running_loop().call_later(0.1, end.write, b"\r\n")
        return asked.what == PING

    server.on_asked = answer_in_pieces
    assert converse(program, server, "2.5,6.5", 4.0) == ["done"] * 3
    first, second, third = server.of(CHAT)
    assert {asked.conn for asked in server.of(PING) if asked.t < second.t} == {second.conn}
    pings = [asked for asked in server.of(PING) if second.t < asked.t < third.t]
    gaps = [after.t - before.t for before, after in pairwise(pings)]
    assert len(gaps) >= 2
    assert gaps == pytest.approx([1.0] * len(gaps), abs=0.4), "a third of what the server states"
    assert pings[-1].t - second.t == pytest.approx(4.0, abs=1.5), "no longer than asked for"
    assert third.conn not in {first.conn, second.conn, *(asked.conn for asked in pings)}


def test_a_ping_without_an_answer_for_two_seconds_replaces_the_connection(program: Path) -> None:
    server = KeepingServer([0.1], report=b"HTTP/1.1 404 -\r\ncontent-length: 0\r\nconnection: keep-alive\r\n")
    server.ping = OK + b"keep-alive: timeout=3\r\n"
    server.on_asked = lambda asked, end: asked.what == PING and len(server.of(PING)) == 1
    # The first answer to a report states no timeout, so the first ping comes with the second turn's pause.
    server.report = OK + b"keep-alive: timeout=3\r\n"
    assert converse(program, server, "5", 60.0) == ["done"] * 2
    first, second = server.of(PING)[:2]
    assert second.t - first.t == pytest.approx(2.0, abs=0.5)
    assert first.conn != second.conn == server.of(CHAT)[1].conn


def test_a_question_that_meets_a_closed_connection_is_asked_again_at_once(program: Path) -> None:
    server = KeepingServer([0.1])

    def close(asked: Asked, end: Writer) -> bool:
        is_met = asked.what == CHAT and len(server.of(CHAT)) == 2
        if is_met:
            end.close()
        return is_met

    server.on_asked = close
    assert converse(program, server, "1.5", 60.0) == ["done"] * 2
    _, met, again = server.of(CHAT)
    assert again.conn > met.conn
    assert again.t - met.t < 0.2


def test_another_address_replaces_the_connection(program: Path) -> None:
    server = KeepingServer([0.1])
    assert converse(program, server, "2", 60.0, "moved") == ["done"] * 2
    reported, asked = server.of(REPORT)[-1], server.of(CHAT)[1]
    before = next(one for one in server.asked if one.what in (REPORT, PING))
    assert before.conn != asked.conn, f"{reported}"


@pytest.mark.parametrize("status", [404, 405])
def test_reports_stop_where_the_server_does_not_take_them(program: Path, status: int) -> None:
    server = KeepingServer([0.1 * number for number in range(25)])
    server.report = f"HTTP/1.1 {status} -\r\ncontent-length: 0\r\n".encode()
    assert converse(program, server, "0.1", 0.0) == ["done"] * 2
    by_turn = [asked for asked in server.of(REPORT) if asked.t < server.of(CHAT)[1].t]
    assert len(by_turn) == 1


def test_a_server_that_closes_the_connection_is_asked_to_keep_no_other(program: Path) -> None:
    server = KeepingServer([0.1])

    def close(asked: Asked, end: Writer) -> bool:
        if asked.what == REPORT:
            end.write(b"HTTP/1.1 404 -\r\ncontent-length: 0\r\n\r\n")
            asyncio.get_running_loop().call_later(0.5, end.close)
        return asked.what == REPORT

    server.on_asked = close
    assert converse(program, server, "3", 60.0) == ["done"] * 2
    assert server.of(PING) == []
    # Two for the first question, one kept; two for the second question, one for its report.
    assert server.connections <= 6
