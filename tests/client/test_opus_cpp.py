"""The C++ client with libopus is the Python client: the shared vectors, scripts at random, and turns of a real server."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.asgi import resuming
from helpers.client_scripts import script
from helpers.clients import (
    OPUS,
    VECTORS,
    audible,
    compile_cpp,
    expand,
    packet,
    run_cpp,
    run_python,
    sounds_as,
    wire,
)
from helpers.spoken import Speaker, alike, likeness
from helpers.uvicorn_server import Serving
from omniwatch.client.opus import OpusDecoder
from omniwatch.settings import Resume as ResumeSettings
from omniwatch.settings import Settings

pytestmark = pytest.mark.programs
SPEECH_S = 1.6
CHAT = '{"stream": true, "seed": 1}'


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("vectors", tmp_path_factory.mktemp("cpp"), opus=True)


@pytest.fixture(scope="module")
def speak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("speak", tmp_path_factory.mktemp("cpp"), opus=True)


def test_vectors(program: Path) -> None:
    scripts = [[expand(line) for line in vector["script"]] for vector in OPUS["vectors"]]
    for vector, lines in zip(OPUS["vectors"], run_cpp(program, scripts), strict=True):
        got, wanted = audible(lines), vector["expect"]
        assert len(got) == len(wanted), vector["name"]
        for one, other in zip(got, wanted, strict=True):
            assert sounds_as(one, other), f"{vector['name']}: {one}, not {other}"


def test_what_is_no_opus_is_as_without_it(program: Path) -> None:
    scripts = [[expand(line) for line in vector["script"]] for vector in VECTORS]
    for vector, got in zip(VECTORS, run_cpp(program, scripts), strict=True):
        assert got == vector["expect"], vector["name"]


def test_without_the_define_opus_is_refused(tmp_path: Path) -> None:
    bare = compile_cpp("vectors", tmp_path)
    (vector,) = (one for one in OPUS["vectors"] if one["name"] == "packets from the first to the end")
    (got,) = run_cpp(bare, [[expand(line) for line in vector["script"][:-1]]])
    assert "ended refused: odd format" in got
    assert not any(line.startswith("audio") for line in got)


@pytest.mark.parametrize(
    ("kind", "rate_hz", "channels"), [("mono", 24_000, 1), ("high", 48_000, 1), ("stereo", 48_000, 2)]
)
def test_both_decoders_make_the_same_sound(program: Path, kind: str, rate_hz: int, channels: int) -> None:
    names = [f"{kind}.{number}" for number in range(len(OPUS["packets"][kind]))]
    script_of = [
        "start 0",
        "opened 0.1 0",
        "head 0.2 0 200 x-omni-resume=S x-omni-first-id=0 x-omni-frame-ms=80",
        f"data 0.3 0 {wire(f'format:4294967295.1:opus/{rate_hz}/{channels}')}",
        *(f"data 0.3 0 {wire(f'packet:{number}:{name}')}" for number, name in enumerate(names)),
    ]
    (lines,) = run_cpp(program, [script_of])
    heard = b"".join(bytes.fromhex(line.split()[2]) for line in lines if line.startswith("audio"))
    decoder = OpusDecoder(rate_hz, channels, 80)
    wanted = b"".join(bytes(decoder.decode(memoryview(packet(name))) or b"") for name in names)
    assert len(heard) == len(wanted) == len(names) * rate_hz * 8 // 100 * 2 * channels
    assert likeness(wanted, heard) > 0.99


@pytest.mark.parametrize("seed", range(5))
def test_scripts_made_up_at_random(program: Path, seed: int) -> None:
    """All but the sound itself: what is decoded from noise is each decoder's own."""
    luck = random.Random(seed)
    scripts = [script(luck, opus=True) for _ in range(100)]
    wanted = [sizes(run_python(lines)) for lines in scripts]
    for lines, want, got in zip(scripts, wanted, run_cpp(program, scripts), strict=True):
        assert sizes(got) == want, lines
    said = {line.split()[0] for lines in wanted for line in lines}
    assert {"audio", "lost", "rtx", "resumed", "ended"} <= said


def sizes(lines: list[str]) -> list[str]:
    """Replace the sound of audio lines by its size."""
    found = []
    for line in lines:
        words = line.split(" ")
        if words[0] == "audio":
            words[2] = str(len(words[2]) // 2)
        found.append(" ".join(words))
    return found


class Asked:
    """Notes what kind of answer each request asks for."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.accepts: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.accepts.add(dict(scope["headers"])[b"accept"].decode())
        await self.app(scope, receive, send)


def hear(app: Any, speak: Path, folder: Path) -> tuple[bytes, str, set[str]]:
    """Hear a turn by the C++ client; return its PCM, what it said, and what it asked for."""
    asked, out = Asked(app), folder / "out.pcm"
    with Serving(asked) as server:
        command = [str(speak), "127.0.0.1", str(server.port), str(out), CHAT]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return out.read_bytes(), done.stderr, asked.accepts


def test_opus_is_asked_for_where_it_is_compiled_in(speak: Path, tmp_path: Path) -> None:
    app = resuming(Speaker(speech_s=SPEECH_S, speed=4.0), environ={})[0]
    pcm, said, accepts = hear(app, speak, tmp_path)
    assert said == "done\n"
    assert accepts == {"application/vnd.omniwatch.frames;codec=opus;bitrate=24000"}
    assert len(pcm) == 21 * 3840, "the last packet holds what the look-ahead pushed past the last frame"
    assert pcm != Speaker(speech_s=SPEECH_S).speech(1)
    assert alike(Speaker(speech_s=SPEECH_S).speech(1), pcm) > 0.85


def test_a_server_that_has_no_opus_sends_pcm(speak: Path, tmp_path: Path) -> None:
    without = Settings(resume=ResumeSettings(opus=False))
    app = resuming(Speaker(speech_s=SPEECH_S, speed=4.0), environ={}, settings=without)[0]
    pcm, said, accepts = hear(app, speak, tmp_path)
    assert said == "done\n"
    assert {"codec=opus" in accept for accept in accepts} == {True}
    assert pcm == Speaker(speech_s=SPEECH_S).speech(1)


def test_a_client_without_libopus_asks_for_pcm(tmp_path: Path) -> None:
    app = resuming(Speaker(speech_s=SPEECH_S, speed=4.0), environ={})[0]
    pcm, _, accepts = hear(app, compile_cpp("speak", tmp_path), tmp_path)
    assert accepts == {"application/vnd.omniwatch.frames"}
    assert pcm == Speaker(speech_s=SPEECH_S).speech(1)
