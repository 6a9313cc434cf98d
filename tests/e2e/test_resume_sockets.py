"""Real server, real sockets, both clients: a call that is cut goes on where it stopped, and the event file tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.clients import compile_cpp
from helpers.flaky_network import Listener
from helpers.recording_server import serving
from helpers.scripted_tap import read_events
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.client import Client, Config, Summary
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.resume import Resume
from omniwatch.tap import Tap

ROUGH = """\
about: A network for tests, with as many cuts in seconds as a bad day has.
rtt_ms: 20
jitter_ms: 5
loss: {share: 0.05}
cuts: {every_s: 0.8, silent: 0.3}
"""


@contextlib.contextmanager
def linked(port: int, scenario: Path, seed: int = 3) -> Iterator[int]:
    """Run `omniwatch link` before a server; give its port."""
    command = [sys.executable, "-m", "omniwatch", "link", "--to", f"127.0.0.1:{port}"]
    command += ["--scenario", str(scenario), "--seed", str(seed)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as link:
        assert link.stderr is not None
        listening = re.match(r"listening on 127\.0\.0\.1:(\d+), ", link.stderr.readline())
        assert listening
        try:
            yield int(listening[1])
        finally:
            link.send_signal(signal.SIGINT)
            said = link.stderr.read()
            assert link.wait(20) == 0, said
            assert re.search(r"^\d+ connections, \d+ bytes up, \d+ bytes down$", said, re.MULTILINE)


@pytest.fixture
def rough(tmp_path: Path) -> Path:
    path = tmp_path / "rough.yaml"
    path.write_text(ROUGH)
    return path


def listen(port: int, seed: int, name: str) -> tuple[Listener, Summary]:
    listener = Listener()
    # Every sample is compared, so it has to be PCM.
    pcm, jitter = Config(opus=False), random.Random(seed).random
    client = Client(f"http://127.0.0.1:{port}", listener, name=name, config=pcm, jitter=jitter)
    return listener, asyncio.run(client.speak({"seed": seed, "modalities": ["text", "audio"]}))


def test_python_client_over_a_rough_network_behind_the_tap(tmp_path: Path, rough: Path) -> None:
    speaker = FakeServer(speech_s=12.0, speed=2.0)
    environ = {"OMNIWATCH_EVENTS": str(tmp_path / "events.jsonl")}
    app = Resume(Tap(speaker, environ=environ), environ=environ)
    with serving(app) as port, linked(port, rough) as link:
        listener, summary = listen(link, 1, "glasses")
        assert summary.reason == "done"
        assert listener.speech == speaker.speech(1)
        assert listener.said == speaker.text(1)
        assert len(summary.resumptions) >= 1
        wait_until(
            lambda: any(isinstance(event, ev.TurnEnd) for event in read_events(tmp_path / "events.jsonl"))
        )
    events = read_events(tmp_path / "events.jsonl")
    assert {event.stream for event in events} <= {"name=glasses", "unknown"}
    heard_ms = sum(event.dur_ms for event in events if isinstance(event, ev.Audio))
    assert heard_ms == pytest.approx(len(listener.speech) / 48), (
        "the tap hears the turn once, however often it is cut"
    )
    resumed = [event for event in events if isinstance(event, ev.Resume) and event.stream == "name=glasses"]
    assert len([event for event in resumed if event.result == "hit"]) >= 1
    assert all(event.latency_ms is not None for event in resumed if event.result == "hit")


@pytest.fixture(scope="module")
def speak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("speak", tmp_path_factory.mktemp("cpp"))


def test_cpp_client_over_a_rough_network(tmp_path: Path, rough: Path, speak: Path) -> None:
    speaker = FakeServer(speech_s=12.0, speed=2.0)
    said: list[ev.Event] = []
    with serving(Resume(speaker, emit=said.append)) as port, linked(port, rough, seed=5) as link:
        out = tmp_path / "out.pcm"
        done = subprocess.run(
            [str(speak), "127.0.0.1", str(link), str(out), '{"stream": true, "seed": 4}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "done")
    assert out.read_bytes() == speaker.speech(4)
    assert done.stdout == speaker.text(4) + "\n"
    assert "resumed (hit) after" in done.stderr
    assert any(isinstance(event, ev.Resume) and event.result == "hit" for event in said)


def test_cpp_client_says_why_it_hears_nothing(tmp_path: Path, speak: Path) -> None:
    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await FakeServer()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    with serving(refuses) as port:
        done = subprocess.run(
            [str(speak), "127.0.0.1", str(port), str(tmp_path / "out"), "{}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "refused: 401\n")
