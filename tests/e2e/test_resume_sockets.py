"""Real server, real sockets, both clients: a call that is cut goes on where it stopped, and the event file tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.clients import compile_cpp
from helpers.flaky_network import Listener
from helpers.recording_server import serving
from helpers.scripted_tap import read_events
from helpers.spoken import Speaker
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.client import Client, Config, Summary
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.resume import Resume
from omniwatch.settings import Resume as Limits
from omniwatch.settings import Settings
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


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("speak", tmp_path_factory.mktemp("opus"), opus=True)


def begin(program: Path, port: int, out: Path, seed: int = 4) -> subprocess.Popen[str]:
    command = [str(program), "127.0.0.1", str(port), str(out), f'{{"stream": true, "seed": {seed}}}']
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def heard_in_opus(program: Path, port: int, out: Path) -> bytes:
    """Hear a turn by the C++ client."""
    with begin(program, port, out) as process:
        assert process.stderr is not None
        said = process.stderr.read()
    # On a machine that is busy it may come back by itself, and say so.
    assert (process.returncode, said.splitlines()[-1]) == (0, "done")
    return out.read_bytes()


async def listen_in_opus(port: int) -> bytes:
    listener = Listener()
    summary = await Client(f"http://127.0.0.1:{port}", listener).speak({"seed": 4})
    assert (summary.reason, summary.lost) == ("done", 0)
    return listener.speech


def test_a_storm_of_returns_in_opus_is_heard_sample_for_sample(
    tmp_path: Path, rough: Path, decoding: Path
) -> None:
    """Both clients, several at once: each hears through cuts what it hears without, decoded by its own library."""
    said: list[ev.Event] = []
    app = Resume(Speaker(speech_s=8.0, speed=2.0), emit=said.append)
    with serving(app) as port:
        by_cpp = heard_in_opus(decoding, port, tmp_path / "whole.pcm")
        by_python = asyncio.run(listen_in_opus(port))
        assert len(by_cpp) == len(by_python) == 101 * 3840
        assert by_cpp != Speaker(speech_s=8.0).speech(4)

        async def both(link: int) -> list[bytes]:
            return list(await asyncio.gather(*(listen_in_opus(link) for _ in range(3))))

        with linked(port, rough, seed=5) as link:
            outs = [tmp_path / f"{number}.pcm" for number in range(3)]
            processes = [begin(decoding, link, out) for out in outs]
            assert asyncio.run(both(link)) == [by_python] * 3
            for process in processes:
                process.communicate(timeout=100)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [out.read_bytes() for out in outs] == [by_cpp] * 3
    assert sum(isinstance(event, ev.Resume) and event.result == "hit" for event in said) >= 6


def test_a_client_that_is_killed_is_forgotten_after_the_grace(tmp_path: Path, decoding: Path) -> None:
    app = Resume(
        Speaker(speech_s=6.0, speed=2.0), settings=Settings(resume=Limits(grace_s=1.0)), emit=lambda _: None
    )
    with serving(app) as port:
        out = tmp_path / "out.pcm"
        with begin(decoding, port, out) as killed:
            wait_until(lambda: out.exists() and out.stat().st_size > 10 * 3840)
            killed.kill()
        wait_until(lambda: len(app.store) == 0)
        assert len(heard_in_opus(decoding, port, out)) == 76 * 3840, "the next client is served"
    wait_until(lambda: not any(t.name.startswith("omniwatch-encoder") for t in threading.enumerate()))


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
