from __future__ import annotations

import contextlib
import gzip
import io
import socket
import threading
import urllib.request
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import Any

import pytest

from helpers.waiting import wait_until
from helpers.web_calls import Streams, pages
from helpers.web_client import connect, get, raw, read_to_end
from omniwatch.web import handler as webhandler
from omniwatch.web import make_app, respond
from omniwatch.web.response import Response
from omniwatch.web.server import MAX_PER_ADDRESS, ListenError, WebServer, serve
from omniwatch.web.waiting_line import Places


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with serve(["127.0.0.1:0"], make_app(pages())) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: WebServer) -> str:
    return server.addresses[0]


def test_a_scrape_as_prometheus_does_it(address: str) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    reply = get(address, Accept=accept, Accept_Encoding="gzip")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert gzip.decompress(reply.body).endswith(b"omni_streams 2.0\n# EOF\n")


def test_urls_can_be_opened(server: WebServer) -> None:
    with urllib.request.urlopen(server.urls[0], timeout=20) as answer:
        assert b"Omniwatch" in answer.read()


def test_head_has_the_length_and_no_body(address: str) -> None:
    head = get(address, method="HEAD")
    assert head.body == b""
    assert int(head.headers["Content-Length"]) == len(get(address).body)


def test_the_answer_tells_no_versions(address: str) -> None:
    assert get(address).headers["Server"] == "omniwatch"


def test_many_scrape_at_once(address: str) -> None:
    replies: list[int] = []
    scrapes = [threading.Thread(target=lambda: replies.append(get(address).status)) for _ in range(40)]
    for scrape in scrapes:
        scrape.start()
    for scrape in scrapes:
        scrape.join()
    assert replies == [200] * 40


@pytest.mark.parametrize("size", [0, 10, 50_000, 99_999])
def test_a_reload_with_a_body_gets_its_answer(address: str, size: int) -> None:
    head = b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
    assert raw(address, head + b"x" * size).endswith(b"\r\n\r\nreloaded\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/3\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: nonsense\r\n\r\n", 200),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nAccept: \xff\xfe\r\nAccept-Encoding: \xff\r\n\r\n", 200),
        (b"GET /%ff%00 HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_odd_requests_get_an_answer_and_end_nothing(
    address: str, request_head: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = raw(address, request_head)
    assert answer.startswith(b"HTTP/1.0 %d " % status)
    assert b"Server: omniwatch\r\n" in answer
    assert get(address).status == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_says_nothing_and_goes_leaves_no_trace(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    connect(address).close()
    assert raw(address, b"\r\n\r\n") == b""
    assert get(address).status == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_drips_its_request_is_cut_off(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhandler, "REQUEST_S", 0.5)
    with connect(address) as client:
        client.setblocking(False)

        def drip() -> bool:
            try:
                client.send(b"GET /metrics?"[:1])
                return client.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_until(drip)
    assert get(address).status == 200


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhandler, "REQUEST_S", 0.2)
    monkeypatch.setattr(webhandler, "RESPONSE_S", 0.2)
    huge = Response("200 OK", b"x" * 50_000_000)
    sizes = iter([huge, Response("200 OK", b"small")])
    done = threading.Event()

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        done.set()
        return respond(environ, start_response, next(sizes))

    with serve(["127.0.0.1:0"], app, max_connections=1) as server, connect(server.addresses[0]) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert done.wait(20)
        # The one place there is comes free although this client never reads.
        assert wait_until(lambda: raw(server.addresses[0], b"GET / HTTP/1.1\r\n\r\n")).endswith(b"small")


def test_connections_past_the_bound_are_closed_at_once() -> None:
    with serve(["127.0.0.1:0"], make_app(pages()), max_connections=2) as server:
        address = server.addresses[0]
        with connect(address) as one, connect(address) as two:
            assert raw(address, b"GET / HTTP/1.1\r\n\r\n") == b""
            one.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\n")
            assert read_to_end(one).endswith(b"healthy\n")
            two.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\n")
            assert read_to_end(two).endswith(b"healthy\n")
        assert wait_until(lambda: raw(address, b"GET / HTTP/1.1\r\n\r\n"))


def connect_from(source: str, address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10, source_address=(source, 0))


def test_half_open_connections_of_one_address_shut_nobody_else_out() -> None:
    with serve(["127.0.0.1:0"], make_app(pages())) as server, contextlib.ExitStack() as stack:
        address = server.addresses[0]
        for _ in range(100):
            stack.enter_context(connect_from("127.0.0.2", address))
        assert raw(address, b"GET /-/healthy HTTP/1.1\r\n\r\n").endswith(b"healthy\n")


def test_twenty_pages_of_one_address_pass_and_room_is_kept_for_this_machine() -> None:
    places = Places(100, MAX_PER_ADDRESS, 10)
    assert all(places.take("192.0.2.1") for _ in range(20))
    assert sum(places.take(f"192.0.2.{n % 10}") for n in range(1000)) + 20 == 90
    assert sum(places.take("::1") for _ in range(20)) == 10
    places.give_back("192.0.2.1")
    assert places.take("127.0.0.1")


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("", "", True),
    ],
)
def test_the_addresses_of_one_host_have_one_share(first: str, second: str, one: bool) -> None:
    places = Places(8, 2, 2)
    assert places.take(first)
    assert places.take(second)
    assert places.take(first) is not one


def test_no_more_threads_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(["127.0.0.1:0"], make_app(pages()), max_connections=1) as server:
        with monkeypatch.context() as patch:

            def full(*_: Any) -> None:
                raise RuntimeError("can't start new thread")

            patch.setattr(ThreadingMixIn, "process_request", full)
            for _ in range(3):
                assert raw(server.addresses[0], b"GET / HTTP/1.1\r\n\r\n") == b""
        assert get(server.addresses[0]).status == 200


def test_a_page_that_breaks_off_ends_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"one"
        raise RuntimeError("broke off")

    with serve(["127.0.0.1:0"], app) as server:
        for _ in range(2):
            assert raw(server.addresses[0], b"GET / HTTP/1.1\r\n\r\n").endswith(b"one")
    wait_until(lambda: caplog.text.count("RuntimeError: broke off") == 2)


def test_a_large_exposition_arrives_whole() -> None:
    with serve(["127.0.0.1:0"], make_app(pages(Streams(50_000)))) as server:
        reply = get(server.addresses[0])
        assert reply.body.count(b"\n") == 50_000 + 5
        assert len(reply.body) == int(reply.headers["Content-Length"])


def test_several_addresses_and_every_host() -> None:
    with serve([":0", "127.0.0.1:0", "127.0.0.2:0"], make_app(pages())) as server:
        assert len(set(server.addresses)) == 3
        everywhere, loopback, _ = server.addresses
        assert get(f"127.0.0.1:{everywhere.rpartition(':')[2]}").status == 200
        assert get(loopback).status == 200
        assert server.urls[0] == f"http://localhost:{everywhere.rpartition(':')[2]}/"
        assert server.urls[1] == f"http://{loopback}/"


def test_ipv6_where_there_is_any() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        there = True
    except OSError:
        there = False
    try:
        with serve(["[::1]:0"], make_app(pages())) as server:
            assert server.addresses[0].startswith("[::1]:")
            assert get(server.addresses[0]).status == 200
        served = True
    except ListenError:
        served = False
    assert served == there


@pytest.mark.parametrize(
    "address",
    [
        "9842",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:http",
        "::1:9842",
        "[::1]",
        "a b:1",
        ":65536",
        "[x]:1",
        "",
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ListenError) as caught:
        serve([address], make_app(pages()))
    assert str(caught.value) == (
        f'--web.listen-address: expected host:port, such as 127.0.0.1:9842 or :9842, got "{address}"'
    )


def test_an_address_of_another_machine() -> None:
    with pytest.raises(
        ListenError, match=r"^--web.listen-address 192\.0\.2\.1:0: cannot listen: Cannot assign"
    ):
        serve(["192.0.2.1:0"], make_app(pages()))


def test_a_port_in_use_is_one_line_and_nothing_is_left_listening(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ListenError) as caught:
        serve([free, address], make_app(pages()))
    assert str(caught.value) == f"--web.listen-address {address}: cannot listen: the port is in use"
    with serve([free], make_app(pages())):
        assert get(free).status == 200


def test_close_frees_the_port() -> None:
    with serve(["127.0.0.1:0"], make_app(pages())) as server:
        address = server.addresses[0]
        assert get(address).status == 200
    with pytest.raises(ConnectionRefusedError):
        connect(address)
    with serve([address], make_app(pages())) as again:
        assert get(again.addresses[0]).status == 200


def test_the_timed_socket_counts_all_waits_together() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = io.BufferedReader(webhandler.TimedSocket(ours, 0.3))
        theirs.sendall(b"line\nrest")
        assert reader.readline() == b"line\n"
        with pytest.raises(TimeoutError):
            reader.readline()
        with pytest.raises(TimeoutError, match="the client was too slow"):
            reader.readline()
