"""The bridge's web side: TLS, login, and bounds on what a client sends and on who asks."""

from __future__ import annotations

import base64
import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.fake_robots import StandIn, webhook
from helpers.waiting import wait_until
from helpers.web_client import connect, raw, read_to_end
from helpers.web_files import TLS, Site, hashed
from omniwatch.cli import main
from omniwatch.notify.webhook_server import MAX_BODY, MAX_CONNECTIONS, WebhookServer
from omniwatch.settings.receivers import Notify, Robot
from omniwatch.web import handler

Start = Callable[..., WebhookServer]


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    robot = StandIn("wecom")
    yield robot
    robot.close()


@pytest.fixture
def start(tmp_path: Path, stand_in: StandIn) -> Iterator[Start]:
    with contextlib.ExitStack() as ends:

        def started(**more: object) -> WebhookServer:
            (tmp_path / "url").write_text(stand_in.url)
            robot = Robot(kind="wecom", url_file=str(tmp_path / "url"))
            bridge = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[robot]), **more)
            ends.callback(bridge.stop)
            return bridge

        yield started


def posted(body: bytes, length: int | None = None, *headers: bytes) -> bytes:
    """A POST to /page as it is on the wire; without a Content-Length where `length` is negative."""
    announced = len(body) if length is None else length
    lines = [b"POST /page HTTP/1.1", b"Host: 127.0.0.1", *headers]
    if announced >= 0:
        lines.append(b"Content-Length: %d" % announced)
    return b"\r\n".join([*lines, b"", body])


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_over_tls_only_whoever_logs_in_gets_a_message_delivered(
    tmp_path: Path, start: Start, stand_in: StandIn
) -> None:
    site = Site(tmp_path)
    text = f"{TLS}basic_auth_users: {{alertmanager: {hashed('right')}}}\n"
    bridge = start(web_config=site.write(text))
    trusting = ssl.create_default_context(cafile=str(site.ca_file))

    def post(password: str) -> int:
        word = base64.b64encode(f"alertmanager:{password}".encode()).decode()
        request = urllib.request.Request(
            f"https://{bridge.address}/page", webhook(), {"Authorization": f"Basic {word}"}
        )
        try:
            with urllib.request.urlopen(request, context=trusting, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert (post("wrong"), post("right")) == (401, 200)
    wait_until(lambda: stand_in.taken)
    assert len(stand_in.taken) == 1


def test_a_login_that_fails_is_answered_whatever_the_length_of_the_body(tmp_path: Path, start: Start) -> None:
    bridge = start(web_config=Site(tmp_path).write(f"basic_auth_users: {{a: {hashed('right')}}}\n"))
    assert status(raw(bridge.address, posted(b" " * MAX_BODY))) == 401


def test_the_command_refuses_a_web_configuration_that_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://robot.example/send")
    (tmp_path / "omniwatch.yaml").write_text(
        f"notify: {{listen_address: '127.0.0.1:0', robots: [{{kind: wecom, url_file: {tmp_path}/url}}]}}"
    )
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: absent, key_file: absent}")
    files = [f"--config.file={tmp_path}/omniwatch.yaml", f"--web.config.file={tmp_path}/web.yml"]
    result = CliRunner().invoke(main, ["notify", *files])
    expected = f"Error: web.yml: tls_server_config.cert_file: {tmp_path}/absent: No such file or directory\n"
    assert (result.exit_code, result.stderr) == (2, expected)


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (posted(b" " * MAX_BODY), 400),
        (posted(b" " * (MAX_BODY + 1)), 413),
        (posted(b"", 10**12), 413),
        (posted(b"", 10**40), 413),
        (posted(b"{}", -1), 411),
        (posted(b"{}", -1, b"Content-Length: -2"), 400),
        (posted(b"{}", -1, "Content-Length: ²".encode()), 400),
        (posted(b"2\r\n{}\r\n0\r\n\r\n", -1, b"Transfer-Encoding: chunked"), 411),
    ],
)
def test_a_body_beyond_the_bounds_is_refused(start: Start, request_bytes: bytes, expected: int) -> None:
    bridge = start()
    # The client's end is closed, so that the server does not wait for the body that was announced.
    with connect(bridge.address) as client:
        client.sendall(request_bytes)
        client.shutdown(1)
        assert status(read_to_end(client)) == expected
    assert status(raw(bridge.address, posted(webhook()))) == 200


def test_a_body_that_ends_early_is_no_message(start: Start, stand_in: StandIn) -> None:
    bridge = start()
    whole = webhook()
    with connect(bridge.address) as client:
        client.sendall(posted(whole, len(whole) + 1))
        client.shutdown(1)
        assert status(read_to_end(client)) == 400
    assert stand_in.attempts == 0


def test_a_body_that_drips_is_given_up_in_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "REQUEST_S", 0.3)
    assert status(raw(start().address, posted(b"{", 100))) == 408


def test_connections_past_the_bound_are_closed_at_once(start: Start) -> None:
    bridge = start()
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(connect(bridge.address))
        assert raw(bridge.address, posted(webhook())) == b""
    wait_until(lambda: raw(bridge.address, posted(webhook())))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"Origin: http://evil.example", 403),
        (b"Host: evil.example:9095", 403),
        (b"Host: bridge.example:9095", 200),
        (b"Accept: */*", 200),
    ],
)
def test_a_page_in_a_browser_makes_no_messages(
    start: Start, stand_in: StandIn, header: bytes, expected: int
) -> None:
    bridge = start(hosts=["bridge.example"])
    request = posted(webhook(), None, header)
    if header.startswith(b"Host"):
        request = request.replace(b"Host: 127.0.0.1\r\n", b"")
    assert status(raw(bridge.address, request)) == expected
    if expected == 200:
        wait_until(lambda: stand_in.taken)
    assert stand_in.attempts == (expected == 200)
