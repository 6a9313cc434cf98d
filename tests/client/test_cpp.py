"""The C++ client is the Python client: the shared vectors, and scripts made up at random."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from pathlib import Path

import pytest

from helpers.asgi import resuming
from helpers.client_scripts import script
from helpers.clients import (
    ANSWERS,
    INVALID,
    VECTORS,
    comma_locale,
    compile_cpp,
    expand,
    run_cpp,
    run_python,
    wire,
)
from helpers.paths import DATA
from helpers.uvicorn_server import Serving
from helpers.waiting import wait_until
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.resume import Resume

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("vectors", tmp_path_factory.mktemp("cpp"))


@pytest.fixture(scope="module")
def speak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("speak", tmp_path_factory.mktemp("cpp"))


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("watching", tmp_path_factory.mktemp("cpp"), DATA)


@pytest.mark.parametrize("comma", [False, True], ids=["a point", "a comma"])
def test_vectors(program: Path, tmp_path: Path, comma: bool) -> None:
    scripts = [[expand(line) for line in vector["script"]] for vector in VECTORS]
    environ = comma_locale(tmp_path) if comma else None
    for vector, got in zip(VECTORS, run_cpp(program, scripts, environ), strict=True):
        assert got == vector["expect"], vector["name"]


def test_answers_are_read_as_in_python(program: Path) -> None:
    (got,) = run_cpp(program, [[f"answer {said.hex()}" for said, *_ in ANSWERS]])
    assert got == [f"answer {status} {int(done)} {body.hex()}".strip() for _, status, body, done in ANSWERS]


def test_what_is_no_answer_is_refused(program: Path) -> None:
    (got,) = run_cpp(program, [[f"answer {said.hex()}" for said in INVALID.values()]])
    assert dict(zip(INVALID, got, strict=True)) == dict.fromkeys(INVALID, "answer invalid")


@pytest.mark.parametrize("seed", range(5))
def test_scripts_made_up_at_random(program: Path, seed: int) -> None:
    luck = random.Random(seed)
    scripts = [script(luck) for _ in range(200)]
    wanted = [run_python(lines) for lines in scripts]
    for lines, want, got in zip(scripts, wanted, run_cpp(program, scripts), strict=True):
        assert got == want, lines
    said = {line.split()[0] for lines in wanted for line in lines}
    assert {"audio", "lost", "rtx", "resumed", "realign", "ended", "report", "due"} <= said


def test_where_the_first_address_is_silent_the_next_is_tried_and_the_name_asked_for_once(
    tmp_path: Path, silent_host: int
) -> None:
    program = compile_cpp("two_addresses", tmp_path, DATA)
    app = Resume(FakeServer(speech_s=0.8, speed=4.0), environ={})
    with Serving(app, port=silent_host):
        command = [str(program), str(silent_host), '{"stream": true, "seed": 1}']
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    reason, asked, heard = done.stdout.rsplit(" ", 2)
    assert (reason, int(asked)) == ("done", 1)
    assert int(heard) == 11


def test_shifts_are_reported_where_a_comma_is_the_decimal_point(watching: Path, tmp_path: Path) -> None:
    app, _, said = resuming(FakeServer(speech_s=2.4, speed=1.1), environ={})
    with Serving(app) as server:
        command = [str(watching), str(server.port), '{"stream": true, "seed": 1}']
        environ = comma_locale(tmp_path)
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ)
    reason, *shifts = done.stdout.split()
    assert (reason, [f"{event.shift_ms:.3f}" for event in said]) == ("done", shifts)
    assert float(shifts[0]) < -40


def test_what_the_ears_throw_reaches_the_application_and_the_server_is_told(watching: Path) -> None:
    app, speaker, _ = resuming(FakeServer(speech_s=20.0, speed=1.1), environ={})
    with Serving(app) as server:
        command = [str(watching), str(server.port), '{"stream": true, "seed": 1}', "deaf"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "threw no sound card\n"
        wait_until(lambda: speaker.left == 1)
    assert len(app.store) == 0


def test_one_more_packet_follows_a_question_that_is_whole(speak: Path, tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.read(65_536)
            if head:
                heard.extend((head, await reader.read(65_536)))
                writer.write(b"HTTP/1.1 400 -\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        words = [str(speak), "127.0.0.1", str(port), str(tmp_path / "out.pcm"), '{"stream": true}']
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
        try:
            await asyncio.wait_for(process.communicate(), 30)
        finally:
            server.close()
        return heard

    asked, echo = asyncio.run(main())
    assert asked.endswith(b'\r\nX-Omni-Padding: 1\r\nContent-Length: 17\r\n\r\n{"stream": true}')
    assert echo == b"\n"


def test_a_question_aside_that_nobody_answers_is_given_up(speak: Path, tmp_path: Path) -> None:
    async def main() -> str:
        given_up = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                asked = await reader.readuntil(b"\r\n")
            except asyncio.IncompleteReadError:
                return
            if asked.startswith(b"POST /v1/rtx"):
                await reader.read()
                given_up.set()
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nX-Omni-Resume: S\r\nX-Omni-First-Id: 0\r\n\r\n")
                for word in ("format:4294967295.1:100", "speech:0:" + "00" * 16, "speech:4:" + "00" * 16):
                    writer.write(bytes.fromhex(wire(word)))
                while not given_up.is_set():
                    writer.write(bytes.fromhex(wire("idle")))
                    await asyncio.sleep(0.1)
                writer.write(bytes.fromhex(wire("end:4.1:done")))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        command = [
            str(speak),
            "127.0.0.1",
            str(port),
            str(tmp_path / "out.pcm"),
            json.dumps({"stream": True}),
        ]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            return (await asyncio.wait_for(process.communicate(), 30))[1].decode()
        finally:
            server.close()

    assert asyncio.run(main()) == "lost 3 frames from 1 on\ndone\n"


def test_the_example_compiles_and_says_how_it_is_used(speak: Path) -> None:
    done = subprocess.run([str(speak)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: speak HOST PORT OUT.pcm CHAT.json\n")
