"""Both clients over TLS against a real server: resumption as over TCP; certificates that do not hold are refused."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import re
import socket
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from helpers.clients import compile_cpp
from helpers.flaky_network import Listener
from helpers.relay import Relay
from helpers.uvicorn_server import Serving
from omniwatch import events as ev
from omniwatch.client import Client, Config, Summary
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.resume import Resume

pytestmark = pytest.mark.programs

HOURS = datetime.timedelta(hours=1)


class Authority:
    """A certificate authority, its file, and server certificates from it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def serving(self, app: Any, *names: str, expired: bool = False) -> Serving:
        """Serve an application with a certificate of these names."""
        now = datetime.datetime.now(datetime.timezone.utc)
        issued = self._ca.issue_cert(*names, not_after=now - HOURS if expired else now + HOURS)
        chain, key = self._directory / "server.crt", self._directory / "server.key"
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)
        return Serving(app, ssl_certfile=chain, ssl_keyfile=key)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(scope="module")
def speak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("speak", tmp_path_factory.mktemp("cpp"))


class Outcome(NamedTuple):
    """How a turn ended for one of the clients, why no connection came about, and what was heard."""

    reason: str
    error: str
    speech: bytes
    answered_s: list[float]
    """Seconds from the first attempt to the first new frame, of each return."""


def hear_in_python(host: str, port: int, ca_file: Path | None, seed: int = 1) -> Outcome:
    listener = Listener()
    client = Client(
        f"https://{host}:{port}" if ca_file else f"http://{host}:{port}",
        listener,
        ca_file=ca_file,
        config=Config(give_up_s=10, opus=False),
        jitter=random.Random(seed).random,
    )
    summary: Summary = asyncio.run(asyncio.wait_for(client.speak({"seed": seed}), 60))
    answered_s = [resumption.answer_s for resumption in summary.resumptions]
    return Outcome(summary.reason, summary.error, listener.speech, answered_s)


def hear_in_cpp(program: Path, host: str, port: int, ca_file: Path | None, seed: int = 1) -> Outcome:
    out = program.parent / f"{port}.pcm"
    done = subprocess.run(
        [
            str(program),
            f"https://{host}" if ca_file else host,
            str(port),
            str(out),
            f'{{"stream": true, "seed": {seed}}}',
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | ({"SSL_CERT_FILE": str(ca_file)} if ca_file else {}),
    )
    *_, last = done.stderr.splitlines()
    reason, _, error = last.partition(": ")
    answered_s = [float(found) for found in re.findall(r"answered in ([0-9.e-]+) s", done.stderr)]
    return Outcome(reason, error, out.read_bytes(), answered_s)


@pytest.fixture(params=["python", "cpp"])
def hear(request: pytest.FixtureRequest, speak: Path) -> Any:
    if request.param == "python":
        return hear_in_python
    return lambda *args, **options: hear_in_cpp(speak, *args, **options)


@pytest.fixture
def cutting_relay() -> Iterator[Any]:
    """Make a relay to a port that resets what it carries twice a second, without a pause in carrying new connections."""

    class Cutting(Relay):
        def __enter__(self) -> Cutting:
            super().__enter__()
            asyncio.run_coroutine_threadsafe(self._cut_often(), self._loop)
            return self

        async def _cut_often(self) -> None:
            while True:
                await asyncio.sleep(0.5)
                await self._cut()

    return Cutting


def test_a_turn_goes_on_through_cuts_as_over_tcp(hear: Any, authority: Authority, cutting_relay: Any) -> None:
    fake_server = FakeServer(speech_s=6.0, speed=2.0)
    emitted: list[ev.Event] = []
    app = Resume(fake_server, emit=emitted.append, environ={})
    with authority.serving(app, "localhost", "127.0.0.1") as server, cutting_relay(server.port) as relay:
        outcome = hear("127.0.0.1", relay.port, authority.file)
    assert (outcome.reason, outcome.error) == ("done", "")
    assert outcome.speech == fake_server.speech(1)
    hits = [event for event in emitted if isinstance(event, ev.Resume) and event.result == "hit"]
    assert len(hits) >= len(outcome.answered_s) >= 2


def test_a_return_over_tls_takes_one_round_trip_more(hear: Any, authority: Authority) -> None:
    fake_server = FakeServer(speech_s=8.0, speed=1.2)
    one_way_ms = 100.0

    def answered_s(ca_file: Path | None, server: Serving) -> float:
        with Cut(server.port, one_way_ms) as relay:
            outcome = hear("127.0.0.1", relay.port, ca_file)
        assert outcome.reason == "done", outcome
        assert outcome.speech == fake_server.speech(1)
        assert len(outcome.answered_s) >= 2
        return statistics.median(outcome.answered_s)

    class Cut(Relay):
        """Delays both directions; resets all connections every two seconds."""

        def __init__(self, port: int, delay_ms: float) -> None:
            super().__init__(port, up_ms=delay_ms, down_ms=delay_ms)

        def __enter__(self) -> Cut:
            super().__enter__()
            asyncio.run_coroutine_threadsafe(self._cut_often(), self._loop)
            return self

        async def _cut_often(self) -> None:
            while True:
                await asyncio.sleep(2.0)
                await self._cut()

    with authority.serving(Resume(fake_server, environ={}), "127.0.0.1") as server:
        over_tls_s = answered_s(authority.file, server)
    with Serving(Resume(fake_server, environ={})) as server:
        over_tcp_s = answered_s(None, server)
    round_trip_s = 2 * one_way_ms / 1000
    # The relay ends TCP itself: its handshake takes no time here, so a return over TCP is one round trip, over TLS two.
    said = f"answered over TCP in {over_tcp_s:.3f} s, over TLS in {over_tls_s:.3f} s"
    assert over_tls_s - over_tcp_s <= 1.5 * round_trip_s, said


@pytest.mark.parametrize(
    ("names", "expired", "trusted", "said"),
    [
        (["127.0.0.1"], False, False, "unable to get local issuer certificate|self.signed certificate"),
        (
            ["other.example"],
            False,
            True,
            "IP address mismatch|no alternative certificate subject name matches",
        ),
        (["127.0.0.1"], True, True, "certificate has expired"),
    ],
    ids=["of another authority", "of another host", "expired"],
)
def test_a_certificate_that_does_not_hold_is_refused(
    hear: Any,
    authority: Authority,
    tmp_path: Path,
    names: list[str],
    expired: bool,
    trusted: bool,
    said: str,
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    fake_server = FakeServer()
    with authority.serving(Resume(fake_server, environ={}), *names, expired=expired) as server:
        outcome = hear("127.0.0.1", server.port, (authority if trusted else other).file)
    assert outcome.reason == "no way to the server"
    assert re.search(said, outcome.error), outcome.error
    assert outcome.speech == b""


def test_an_unreadable_ca_file_is_refused_before_anything_is_sent(speak: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(ValueError, match=r"missing\.pem: no certificates to be read"):
        Client("https://localhost", Listener(), ca_file=missing)
    with pytest.raises(ValueError, match="for https only"):
        Client("http://localhost", Listener(), ca_file=missing)
    with socket.create_server(("127.0.0.1", 0)) as server:
        outcome = hear_in_cpp(speak, "127.0.0.1", server.getsockname()[1], missing)
    assert outcome.reason == "no way to the server"
    assert str(missing) in outcome.error


def test_without_a_ca_file_the_systems_authorities_count(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with authority.serving(Resume(FakeServer(), environ={}), "127.0.0.1") as server:
        client = Client(f"https://127.0.0.1:{server.port}", Listener())
        summary = asyncio.run(asyncio.wait_for(client.speak({"seed": 1}), 30))
    assert summary.reason == "no way to the server"
    assert "certificate verify failed" in summary.error
