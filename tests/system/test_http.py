"""HTTP calls: whatever a server does, they are over in time, and what they say of it is one line."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from helpers.hostile_http import ENDLESS, HEADS, OK, hostile, unresolvable
from omniwatch.system import http
from omniwatch.system.terminal import one_line

TIMEOUT_S = 1.0
SLACK_S = 4.0
"""What a busy machine may add."""
MAX_BYTES = 100_000


def fetch(
    url: str, *, timeout_s: float = 10.0, body: bytes | None = None, cut: bool = False, **more
) -> bytes:
    with http.ask(url, timeout_s=timeout_s, body=body, **more) as answer:
        return answer.read(MAX_BYTES, cut=cut)


def says(data: bytes):
    return hostile(lambda: [data])


@contextmanager
def closes_after(data: bytes) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        speaking = threading.Thread(target=speak)
        speaking.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        speaking.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end_is_over_at_the_deadline(name):
    speech, pause_s = ENDLESS[name]
    with hostile(speech, pause_s, HEADS.get(name, b"")) as url:
        began = time.monotonic()
        tracemalloc.start()
        try:
            with pytest.raises(http.HttpError) as failed:
                fetch(url, timeout_s=TIMEOUT_S)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert time.monotonic() - began < TIMEOUT_S + SLACK_S
    assert str(failed.value).isprintable()
    assert peak < 10 * MAX_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drips its head", "drips its body", "never answers", "drips 100 Continue"])
def test_a_slow_answer_is_late(name):
    speech, pause_s = ENDLESS[name]
    with (
        hostile(speech, pause_s, HEADS.get(name, b"")) as url,
        pytest.raises(http.LateError, match="no whole answer within 1 s"),
    ):
        fetch(url, timeout_s=TIMEOUT_S)


def test_a_name_that_does_not_resolve_in_time_is_asked_for_once(monkeypatch):
    with unresolvable(monkeypatch) as asked:
        before = set(threading.enumerate())
        for _ in range(3):
            with pytest.raises(
                http.UnreachableError, match=r"the name slow\.example was not resolved in time"
            ):
                fetch("http://slow.example/", timeout_s=0.05)
        assert asked == ["slow.example"]
        assert [one.name for one in set(threading.enumerate()) - before] == ["resolver"]


def test_a_name_that_is_none_is_said():
    with pytest.raises(http.UnreachableError):
        fetch("http://nowhere.invalid/")


def test_a_server_that_is_silent_in_the_tls_handshake_is_left():
    with hostile(lambda: []) as url:
        began = time.monotonic()
        with pytest.raises(http.UnreachableError, match="within 1 s"):
            fetch(url.replace("http:", "https:"), timeout_s=TIMEOUT_S)
        assert time.monotonic() - began < TIMEOUT_S + SLACK_S


def test_a_request_that_is_not_taken_is_over_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(http.LateError):
            fetch(url, timeout_s=TIMEOUT_S, body=bytes(50_000_000))


def test_nobody_listening_is_said():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(http.UnreachableError, match="Connection refused"):
        fetch(url)


def test_no_redirection_is_followed():
    found = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with says(found) as url, http.ask(url, timeout_s=10) as answer:
        assert answer.status == 302
        assert not answer.ok


def test_a_long_body_is_refused_or_cut():
    long = OK + b"Content-Length: 100001\r\n\r\n" + bytes(100_001)
    with says(long) as url:
        with pytest.raises(http.MalformedError, match="more than 100000 bytes"):
            fetch(url)
        assert fetch(url, cut=True) == bytes(MAX_BYTES)


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (b"", http.CutError, "the server closed the connection without an answer"),
        (OK + b"Content-Length: 10\r\n\r\nhalf", http.CutError, "in the middle of the answer"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", http.CutError, "in the middle of the answer"),
        (b"\x1b[2Jgarbage\r\n", http.MalformedError, r"not an answer in HTTP: \\x1b\[2Jgarbage"),
        (b"HTTP/1.1 abc\r\n\r\n", http.MalformedError, "not an answer in HTTP"),
    ],
)
def test_what_is_no_whole_answer_is_said_in_a_line(data, kind, said):
    with closes_after(data) as url, pytest.raises(kind, match=said):
        fetch(url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/",
        "h:1",
        "http://",
        "http://u:p@h/",
        "http://h:0/",
        "http://h:x/",
        "http://[::1/",
        "file:///etc",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(http.MalformedError):
        fetch(url)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["/a b", "/\n", "/ü"])
def test_a_path_that_cannot_be_sent_is_refused(url):
    with says(OK + b"\r\n") as base, pytest.raises(http.HttpError):
        fetch(base + url)


@pytest.fixture(params=["http", "https"])
def echoing(request) -> Iterator[tuple[str, ssl.SSLContext | None]]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = f"{self.path} {self.headers['Host']} {self.headers['X-Word']} ".encode() + body
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = None
    if request.param == "https":
        authority = trustme.CA()
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(serving)
        server.socket = serving.wrap_socket(server.socket, server_side=True)
        context = ssl.create_default_context()
        authority.configure_trust(context)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"{request.param}://localhost:{server.server_address[1]}", context
    server.shutdown()
    server.server_close()


def test_a_request_arrives_as_it_was_given(echoing):
    url, context = echoing
    authority = url.partition("//")[2]
    found = fetch(f"{url}/a?b=c", body=b"body", headers={"X-Word": "w"}, context=context)
    assert found == f"/a?b=c {authority} w body".encode()


def test_several_requests_take_one_connection(echoing):
    url, context = echoing
    connection = http.Connection(url, http.Deadline(20), context)
    try:
        for number in range(3):
            answer = connection.request("GET", f"/{number}")
            assert not answer.ends_connection
            assert answer.read(100).startswith(b"/%d " % number)
    finally:
        connection.close()


def test_a_certificate_that_is_not_trusted_is_said(echoing):
    url, context = echoing
    if context is not None:
        with pytest.raises(http.UnreachableError, match="TLS: "):
            fetch(url, body=b"")
    else:
        assert fetch(url, body=b"")


def test_words_of_a_server_are_shown_on_one_line_without_commands():
    assert one_line("a\r\n b\x1b[31m\u202e\ud800é") == "a b\\x1b[31m\\u202e\\ud800é"


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP proxy; gives its address with credentials, and the heads of the requests it took."""
    heads: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def carry(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        heads.append(head)
        host, _, port = head.split()[1].decode().rpartition(":")
        with client, socket.create_connection((host, int(port))) as there:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(there, client))
            back.start()
            pump(client, there)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=carry, args=(server.accept()[0],), daemon=True).start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    yield f"http://me:pass%40word@127.0.0.1:{server.getsockname()[1]}", heads
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    accepting.join()


def test_a_request_goes_through_the_proxy_of_the_environment(echoing, proxy, monkeypatch):
    (url, context), (address, heads) = echoing, proxy
    monkeypatch.setenv(f"{url.partition(':')[0]}_proxy", address)
    monkeypatch.delenv("no_proxy", raising=False)
    assert fetch(url, body=b"body", context=context).endswith(b" body")
    assert len(heads) == 1
    assert b"Proxy-Authorization: Basic bWU6cGFzc0B3b3Jk\r\n" in heads[0]
    monkeypatch.setenv("no_proxy", "localhost")
    assert fetch(url, body=b"body", context=context).endswith(b" body")
    assert len(heads) == 1


def test_a_proxy_that_refuses_is_said(monkeypatch):
    with says(b"HTTP/1.1 407 Say who\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(http.UnreachableError, match=r"the proxy 127\.0\.0\.1 answers 407 Say who"):
            fetch("http://robot.example/")
