"""How the Python client finds its server: the name asked for once a turn, the addresses beside each other, TLS."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from helpers.flaky_network import Listener
from helpers.relay import Relay
from helpers.uvicorn_server import Serving
from helpers.web_files import Site
from omniwatch.client import Client, Config
from omniwatch.client.connector import Connector
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.resume import Resume


def test_where_the_first_address_is_silent_the_next_is_tried(
    silent_host: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def resolved(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, silent_host))
            for host in ("127.0.0.2", "127.0.0.1")
        ]

    listener = Listener()
    with Serving(Resume(FakeServer(speech_s=0.8, speed=4.0), environ={}), port=silent_host):
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        client = Client(f"http://server.example:{silent_host}", listener)
        summary = asyncio.run(asyncio.wait_for(client.speak({"seed": 1}), 30))
    assert (summary.reason, len(listener.heard)) == ("done", 11)
    assert asked == ["server.example"], "once, for whoever answers may be out of reach later"


def local(port: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


def test_a_name_is_asked_for_again_after_no_answer_and_by_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [False, True, True]
    asked = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if not answers.pop(0):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return local(port)

    async def turns(port: int) -> list[str]:
        client = Client(f"http://server.example:{port}", Listener())
        return [(await client.speak({"seed": seed})).reason for seed in range(2)]

    with Serving(Resume(FakeServer(speech_s=0.4, speed=4.0), environ={})) as server:
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        assert asyncio.run(asyncio.wait_for(turns(server.port), 30)) == ["done", "done"]
    assert len(asked) == 3


def test_a_turn_comes_back_where_its_name_is_not_to_be_asked_for_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if len(asked) > 1:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return local(port)

    app = Resume(FakeServer(speech_s=1.6, speed=1.1), environ={})
    with Serving(app) as server, Relay(server.port) as relay:

        class Cutter(Listener):
            def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
                super().audio(frame_id, payload, play_at)
                if len(self.heard) == 5:
                    relay.cut()

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        client = Client(f"http://server.example:{relay.port}", Cutter(), config=Config(give_up_s=5))
        summary = asyncio.run(asyncio.wait_for(client.speak({"seed": 1}), 30))
    assert (summary.reason, summary.spoken, len(summary.resumptions)) == ("done", 21, 1)
    assert len(asked) == 1


def test_attempts_wait_for_one_answer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    asked = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        assert answered.wait(30)
        return local(port)

    async def attempts(port: int) -> int:
        connector = Connector("server.example", port, None)
        tasks = [asyncio.ensure_future(connector()) for _ in range(8)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        answered.set()
        made = await asyncio.gather(*tasks, return_exceptions=True)
        for connection in made[4:]:
            assert not isinstance(connection, BaseException), connection
            connection[1].close()
        return sum(isinstance(connection, tuple) for connection in made)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        assert asyncio.run(asyncio.wait_for(attempts(listener.getsockname()[1]), 30)) == 4
    assert asked == ["server.example"]


@pytest.mark.parametrize(
    ("name", "reason"), [("localhost", "done"), ("server.example", "no way to the server")]
)
def test_the_certificate_must_be_of_the_name_and_not_of_its_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, reason: str
) -> None:
    site = Site(tmp_path)
    app = Resume(FakeServer(speech_s=0.4, speed=4.0), environ={})
    files = {"ssl_certfile": tmp_path / "server.crt", "ssl_keyfile": tmp_path / "server.key"}
    with Serving(app, **files) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(site.ca_file))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: local(server.port))
        client = Client(f"https://{name}:{server.port}", Listener(), config=Config(give_up_s=2))
        summary = asyncio.run(asyncio.wait_for(client.speak({"seed": 1}), 30))
    assert summary.reason == reason
