"""The bridge to chat robots in trouble: what it was given outlives it, its robots' nonsense, and a clock that is set."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.fake_robots import StandIn, webhook
from helpers.hostile_http import ENDLESS, HEADS, hostile, unresolvable
from helpers.waiting import wait_until
from omniwatch.desk.child_process import free_port
from omniwatch.notify.messages import Message
from omniwatch.notify.metrics import Metrics
from omniwatch.notify.outbox import Waiting
from omniwatch.notify.queue_file import NAME, QueueFile
from omniwatch.notify.sender import Sender
from omniwatch.notify.webhook_server import WebhookServer
from omniwatch.settings.receivers import Notify, Robot

PAGE = Message("g", "page", True, "标题", "words")
TICKET = Message("h", "ticket", False, "title", "words")


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    robot = StandIn("wecom")
    yield robot
    robot.close()


def notify(tmp_path: Path, url: str, **settings: object) -> Notify:
    (tmp_path / "url").write_text(url)
    robot = Robot(kind="wecom", url_file=str(tmp_path / "url"))
    return Notify(**{"listen_address": "127.0.0.1:0", "robots": [robot], **settings})


def later(bridge: WebhookServer) -> float:
    """How often a message was not taken."""
    labels = {"robot": "wecom-0", "result": "later"}
    return bridge.metrics.registry.get_sample_value("omniwatch_notify_attempts_total", labels)


@pytest.fixture
def nonsense() -> Iterator[str]:
    """The address of a server that does not speak HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"220 robot.example ESMTP\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/send?key=tok"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://127.0.0.1:1/send?key=tok and more",
        "http://127.0.0.1:port/send?key=tok",
        "http://[::1/send?key=tok",
        "http://127.0.0.1/send?key=tök",
    ],
)
def test_whatever_a_robot_or_its_address_is_the_next_message_is_carried(
    tmp_path, stand_in, nonsense, url, caplog, capfd
):
    bridge = WebhookServer(notify(tmp_path, stand_in.url))
    (tmp_path / "url").write_text(url or nonsense)
    bridge.answer("/page", webhook())
    wait_until(lambda: later(bridge) == 1)
    assert bridge.answer("/-/healthy", None)[0] == 200
    (tmp_path / "url").write_text(stand_in.url)
    wait_until(lambda: stand_in.taken)
    assert caplog.records[0].fields["error"] == ("NotifyError" if url else "MalformedError")
    assert "tok" not in caplog.text + capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDLESS)
def test_a_robot_that_never_comes_to_an_end_holds_nothing_up(tmp_path, stand_in, name):
    speech, pause_s = ENDLESS[name]
    with hostile(speech, pause_s, HEADS.get(name, b"")) as url:
        bridge = WebhookServer(notify(tmp_path, url, timeout_s=1.0))
        bridge.answer("/page", webhook())
        wait_until(lambda: later(bridge) == 1)
    (tmp_path / "url").write_text(stand_in.url)
    wait_until(lambda: stand_in.taken)
    bridge.senders[0].stop(20)


def test_a_robots_name_that_does_not_resolve_holds_nothing_up(tmp_path, stand_in, monkeypatch):
    bridge = WebhookServer(notify(tmp_path, "http://slow.example/send", timeout_s=1.0))
    with unresolvable(monkeypatch):
        bridge.answer("/page", webhook())
        wait_until(lambda: later(bridge) == 1)
        (tmp_path / "url").write_text(stand_in.url)
        wait_until(lambda: stand_in.taken)
    bridge.senders[0].stop(20)


def test_the_bridge_is_not_healthy_without_its_senders(tmp_path, stand_in):
    bridge = WebhookServer(notify(tmp_path, stand_in.url))
    assert bridge.answer("/-/healthy", None)[0] == 200
    bridge.senders[0].stop(20)
    assert bridge.answer("/-/healthy", None)[0] == 503


def test_a_bridge_listens_on_ipv6(tmp_path, stand_in):
    bridge = WebhookServer(notify(tmp_path, stand_in.url, listen_address="[::1]:0"))
    with urllib.request.urlopen(f"http://{bridge.address}/-/healthy", timeout=20) as answer:
        assert answer.status == 200
    bridge.stop()


def start(tmp_path: Path, address: str) -> subprocess.Popen[str]:
    """Start the command and wait until it listens."""
    command = [sys.executable, "-m", "omniwatch", "notify", f"--config.file={tmp_path}/omniwatch.yaml"]
    bridge = subprocess.Popen(
        [*command, f"--state-dir={tmp_path / 'state'}"], stderr=subprocess.PIPE, text=True
    )
    assert f"listening on {address}\n" in iter(bridge.stderr.readline, "")
    return bridge


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_accepted_is_delivered_by_the_next_run(tmp_path, stand_in, end):
    address = f"127.0.0.1:{free_port()}"
    robots = [{"kind": "wecom", "url_file": str(tmp_path / "url")}]
    settings = {"notify": {"listen_address": address, "robots": robots}}
    (tmp_path / "omniwatch.yaml").write_text(json.dumps(settings))
    (tmp_path / "url").write_text(f"http://127.0.0.1:{free_port()}/send?key=tok")
    first = start(tmp_path, address)
    with urllib.request.urlopen(f"http://{address}/page", webhook(), timeout=20) as answer:
        assert answer.status == 200
    first.send_signal(end)
    first.communicate(timeout=20)
    (tmp_path / "url").write_text(stand_in.url)
    second = start(tmp_path, address)
    wait_until(lambda: stand_in.taken)
    assert "CodecDrift" in stand_in.taken[0]["markdown"]["content"]
    wait_until(lambda: b"CodecDrift" not in (tmp_path / "state" / NAME).read_bytes())
    second.terminate()
    second.communicate(timeout=20)
    assert {path.name for path in (tmp_path / "state").iterdir()} == {NAME, "lock"}


def kept(directory: Path | None, now: float, wall: float) -> QueueFile:
    return QueueFile(directory, 600, lambda: now, lambda: wall)


def test_time_away_counts_as_time_tried(tmp_path):
    kept(tmp_path, 1000, 1e9).keep("a", [Waiting(900, PAGE), Waiting(1000, TICKET)])
    # Another boot: the monotonic clock has begun anew.
    assert kept(tmp_path, 20, 1e9 + 60).pending("a") == [Waiting(20 - 160, PAGE), Waiting(20 - 60, TICKET)]
    assert kept(tmp_path, 20, 1e9 + 60).pending("b") == ()


def test_a_clock_that_was_set_back_meanwhile_costs_no_time(tmp_path):
    kept(tmp_path, 1000, 1e9).keep("a", [Waiting(900, PAGE)])
    assert kept(tmp_path, 20, 0).pending("a") == [Waiting(20 - 100, PAGE)]


def test_what_waits_for_robots_that_are_gone_is_told_once(tmp_path):
    kept(tmp_path, 0, 0).keep("a", [Waiting(0, PAGE)])
    again = kept(tmp_path, 0, 0)
    assert again.drop_unknown(["b"]) == [PAGE]
    assert kept(tmp_path, 0, 0).drop_unknown(["b"]) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(b'{"written_t": 1, "waiting": [{"robot": "a"}]}'),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_nothing_waits(
    tmp_path, damage: Callable[[Path], object], caplog
):
    kept(tmp_path, 0, 0).keep("a", [Waiting(0, PAGE)])
    damage(tmp_path / NAME)
    assert kept(tmp_path, 0, 0).pending("a") == ()
    assert [record.message for record in caplog.records] == ["what waited cannot be read"]
    assert caplog.records[0].fields["file"] == str(tmp_path / NAME)


def test_where_nothing_can_be_written_it_is_told_once_and_messages_wait_in_memory(tmp_path, stand_in, caplog):
    (tmp_path / "file").touch()
    bridge = WebhookServer(notify(tmp_path, "http://127.0.0.1:1/"), state_dir=tmp_path / "file")
    caplog.clear()
    for name in ("One", "Two"):
        assert bridge.answer("/page", webhook(name))[0] == 200
    (tmp_path / "url").write_text(stand_in.url)
    wait_until(lambda: len(stand_in.taken) == 2)
    told = [record for record in caplog.records if record.name.endswith("queue_file")]
    assert [(one.message, one.fields["error"]) for one in told] == [
        ("what waits cannot be written, and is lost if this ends", "File exists")
    ]


def test_a_clock_that_is_set_neither_expires_nor_defers_what_waits(tmp_path, stand_in):
    wall = 0.0
    settings = notify(tmp_path, "http://127.0.0.1:1/")
    metrics = Metrics()
    sender = Sender(
        "wecom-0", settings.robots[0], settings, metrics, QueueFile(None, 600), "wecom", wall=lambda: wall
    )
    sender.put(PAGE)
    sender.start()
    labels = {"robot": "wecom-0", "result": "later"}
    wait_until(lambda: metrics.registry.get_sample_value("omniwatch_notify_attempts_total", labels) == 1)
    wall = 1.8e9
    (tmp_path / "url").write_text(stand_in.url)
    wait_until(lambda: stand_in.taken)
    assert metrics.registry.get_sample_value("omniwatch_notify_given_up_total", {"robot": "wecom-0"}) == 0
    sender.stop(20)


class Echo(http.server.BaseHTTPRequestHandler):
    """A robot that refuses a message and says its address back, in several spellings."""

    def do_POST(self) -> None:
        token = self.path.partition("key=")[2]
        body = json.dumps(
            {"errcode": 93000, "errmsg": f"no robot at {self.path} ({token}, {token.upper()})"}
        ).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A robot that sends on to another address, where anything is answered with a 200."""

    gets = 0

    def do_POST(self) -> None:
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        type(self).gets += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"errcode": 0}')

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def told(tmp_path, caplog):
    """Give up one message at a robot; return what the log said of it."""

    def tell(handler: type[http.server.BaseHTTPRequestHandler]) -> str:
        robot = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=robot.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://127.0.0.1:{robot.server_address[1]}/cgi-bin/webhook/send?key=6b1f-SECRET-77aa"
        bridge = WebhookServer(notify(tmp_path, url))
        bridge.answer("/page", webhook())
        wait_until(lambda: any(record.getMessage() == "message given up" for record in caplog.records))
        robot.shutdown()
        robot.server_close()
        return " ".join(str(getattr(record, "fields", "")) for record in caplog.records)

    return tell


def test_a_robots_words_put_no_token_into_the_log(told):
    said = told(Echo)
    assert "93000" in said
    assert "6b1f" not in said.lower()


def test_a_redirection_is_not_followed_and_no_delivery(told):
    assert "HTTP 302" in told(Elsewhere)
    assert Elsewhere.gets == 0
