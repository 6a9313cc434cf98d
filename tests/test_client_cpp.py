"""The C++ client is the Python client: the shared vectors, and scripts made up at random."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from clients import VECTORS, compile_cpp, expand, run_cpp, run_python
from omniwatch.link.speaker import Speaker
from omniwatch.resume import Resume
from speaking import Serving


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp("vectors", tmp_path_factory.mktemp("cpp"))


def test_vectors(program: Path) -> None:
    scripts = [[expand(line) for line in vector["script"]] for vector in VECTORS]
    for vector, got in zip(VECTORS, run_cpp(program, scripts), strict=True):
        assert got == vector["expect"], vector["name"]


def place(luck: random.Random) -> str:
    """One frame near the beginning of the turn, in any order, damaged, early, late."""
    frame_id = luck.choice([luck.randint(-3, 12), luck.randint(-1, 6), luck.randint(150, 170)]) % 2**32
    kind = luck.choice(["speech"] * 8 + ["text", "text", "event", "idle", "!speech", "end"])
    if kind.endswith("speech"):
        return f"{kind}:{frame_id}:{frame_id % 256:02x}" + "00" * luck.randint(0, 9)
    if kind == "idle":
        return kind
    part = luck.randint(0 if kind == "end" else 1, 3)
    return f"{kind}:{frame_id}.{part}:{luck.choice(['done', 'superseded', 'slow'])}"


def script(luck: random.Random) -> list[str]:
    lines = [f"jitter {luck.choice([0, 0.5, 1])}", "start 0"]
    if luck.random() < 0.9:
        said = f"x-omni-first-id=0 x-omni-frame-ms=80 x-omni-heartbeat-s={luck.choice([0.25, 0.25, 0.3, 2])}"
        lines += ["opened 0.05 0", f"head 0.1 0 200 x-omni-resume=S {said}"]
        lines += ["data 0.1 0 format:4294967295.1:100"]
    now = 0.1
    verbs = ["data"] * 6 + ["tick"] * 4 + ["opened"] * 3 + ["head", "closed", "again", "refused", "picture"]
    for _ in range(luck.randint(0, 40)):
        now += luck.choice([0.0, 0.01, 0.07, 0.31, 0.6, 1.3])
        verb, conn = luck.choice(verbs), luck.randint(0, 6)
        rest: object = conn
        if verb == "data":
            rest = f"{conn} " + " ".join(place(luck) for _ in range(luck.randint(1, 5)))
        elif verb == "again":
            rest = " ".join(place(luck) for _ in range(luck.randint(1, 5)))
        elif verb == "head":
            rest = f"{conn} {luck.choice([206, 206, 206, 409, 429, 404, 503])} x-omni-result=replay"
        elif verb == "picture":
            rest = luck.randint(0, 3000)
        elif verb == "tick":
            rest = ""
        lines.append(f"{verb} {now:.3f} {rest}")
    return [*map(expand, lines), "counts"]


@pytest.mark.parametrize("seed", range(5))
def test_scripts_made_up_at_random(program: Path, seed: int) -> None:
    luck = random.Random(seed)
    scripts = [script(luck) for _ in range(200)]
    wanted = [run_python(lines) for lines in scripts]
    for lines, want, got in zip(scripts, wanted, run_cpp(program, scripts), strict=True):
        assert got == want, lines
    said = {line.split()[0] for lines in wanted for line in lines}
    assert {"audio", "lost", "rtx", "resumed", "realign", "ended"} <= said


def test_where_the_first_address_is_silent_the_next_is_tried_and_the_name_asked_for_once(
    tmp_path: Path, silent_host: int
) -> None:
    program = compile_cpp("two_addresses", tmp_path, Path(__file__).parent / "data")
    app = Resume(Speaker(speech_s=0.8, speed=4.0), environ={})
    with Serving(app, port=silent_host):
        command = [str(program), str(silent_host), '{"stream": true, "seed": 1}']
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    reason, asked, heard = done.stdout.rsplit(" ", 2)
    assert (reason, int(asked)) == ("done", 1)
    assert int(heard) == 11


def test_the_example_compiles_and_says_how_it_is_used(tmp_path: Path) -> None:
    done = subprocess.run([str(compile_cpp("speak", tmp_path))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: speak HOST PORT OUT.pcm CHAT.json\n")
