"""`slice score`, `keep`, `apply` and `compare` on models whose experts are known. Prints one JSON object: what came of each step.

steps.py MODEL FOLDER

One process for all: torch and transformers take seconds to import.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import brute
import made
from click.testing import CliRunner
from PIL import Image

from omniwatch.cli import main as command
from omniwatch.desk.slice import scoring

DROPPED = (1, 3, 4, 5)
"""Copies, and experts that nobody takes."""


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(command, ["slice", *map(str, arguments)])
    return {"exit": done.exit_code, "out": done.stdout, "err": done.stderr}


def questions(folder: Path, pictures: bool) -> Path:
    """Three questions of noise and tones, at two rates; one has words, one may have a picture."""
    folder.mkdir()
    draw = random.Random(1)
    for name, seconds, rate in (("one", 1.2, 16_000), ("three", 0.9, 16_000), ("two", 0.7, 24_000)):
        count = int(seconds * rate)
        samples = [int(8000 * math.sin(i * 0.05) + draw.gauss(0, 900)) for i in range(count)]
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, count, "NONE", ""))
            file.writeframes(struct.pack(f"<{count}h", *samples))
    (folder / "one.txt").write_text("what is this")
    if pictures:
        Image.effect_noise((96, 64), 90).convert("RGB").save(folder / "two.png")
    return folder


def keep(path: Path, scores: Path, layers: Mapping[str, Mapping[int, list[int]]]) -> Path:
    """Write a keep.json by hand."""
    about = json.loads((scores / "scores.json").read_text())
    parts = {
        part: {"experts": made.EXPERTS, "layers": {str(layer): kept for layer, kept in found.items()}}
        for part, found in layers.items()
    }
    path.write_text(json.dumps({"schema": 1, "config_sha256": about["config_sha256"], "parts": parts}))
    return path


def killed(model: Path, data: Path, out: Path, behind: str) -> dict[str, Any]:
    """Score in a process that is killed behind a layer; then go on in this one."""
    child = os.fork()
    if not child:

        def told(line: str) -> None:
            if line.startswith(f"{behind} "):
                os.kill(os.getpid(), signal.SIGKILL)

        scoring.score(model, data, out, device="cpu", limits=None, told=told)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    found = run("score", model, data, "--out", out)
    return {**found, "killed": os.WIFSIGNALED(status), "files": files(out)}


def full(model: Path, data: Path, out: Path) -> dict[str, Any]:
    """Score where no file may grow to the size of the activations; then without that limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        found = run("score", model, data, "--out", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return {"refused": found, **run("score", model, data, "--out", out), "files": files(out)}


def files(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text() for path in sorted(folder.iterdir()) if path.suffix in (".json", ".jsonl")
    }


def costs(model: Path, data: Path, scores: Path, folder: Path) -> dict[str, Any]:
    """Drop what does no work; then what does, in one layer of each part."""
    found: dict[str, Any] = {}
    found["keep"] = run("keep", scores, "--experts", 2)
    found["kept"] = json.loads((scores / "keep.json").read_text())["parts"]
    found["apply"] = run("apply", model, folder / "free", "--keep", scores / "keep.json")
    found["free"] = run("compare", model, folder / "free", data, "--answers", scores, "--json")
    found["again"] = run("compare", model, folder / "free", data, "--answers", scores)
    found["card"] = (folder / "free/SLICE.md").read_text()
    needed = {
        "thinker": {0: [0, 1, 2, 3], 1: [2, 3, 4, 5], 2: [0, 1, 2, 3]},
        "talker": {0: [0, 1, 2, 3], 1: [0, 1, 4, 5]},
    }
    path = keep(folder / "needed.json", scores, needed)
    run("apply", model, folder / "needed", "--keep", path)
    found["needed"] = run("compare", model, folder / "needed", data, "--answers", scores, "--json")
    return found


def refusals(model: Path, other: Path, data: Path, scores: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """What is refused, by a word for it."""
    cut, new = folder / "free", folder / "new"
    alone = questions(folder / "others", False)
    (alone / "one.wav").unlink()
    video = questions(folder / "video", False)
    (video / "two.mp4").write_bytes(b"")
    (folder / "empty").mkdir()
    packed = folder / "packed"
    packed.mkdir()
    (packed / "config.json").write_bytes((model / "config.json").read_bytes())
    content = (model / "model.safetensors").read_bytes()
    (packed / "model.safetensors").write_bytes(
        content.replace(b'"BF16"', b'"F16" ').replace(b'"F16" ', b'"I16" ', 1)
    )
    said = ("--answers", scores)
    dead = "http://127.0.0.1:9"
    found = {
        "no model": ("score", folder / "nothing", data, "--out", new),
        "no questions": ("score", model, folder / "nothing", "--out", new),
        "no WAV": ("score", model, folder / "empty", "--out", new),
        "a video": ("score", model, video, "--out", new),
        "packed": ("score", packed, data, "--out", new),
        "of another model": ("score", other, data, "--out", scores),
        "of other questions": ("score", model, alone, "--out", scores),
        "something else": ("score", model, data, "--out", data),
        "no such device": ("score", model, data, "--out", new, "--device", "cuda:7"),
        "no such voice": ("score", model, data, "--out", folder / "voice", "--answers", "--speaker", "Bob"),
        "no answers": ("compare", model, cut, data, "--answers", folder / "empty"),
        "no cut model": ("compare", model, model, data, *said),
        "a cut of another": ("compare", other, cut, data, *said),
        "answers to others": ("compare", model, cut, alone, *said),
        "half of it": ("compare", model, cut, data, *said, "--asr", dead),
        "no address": ("compare", model, cut, data, *said, "--asr", dead, "--native", "ftp://x"),
        "nobody there": ("compare", model, cut, data, *said, "--asr", dead, "--native", dead),
    }
    return {name: {**run(*arguments), "left": new.exists()} for name, arguments in found.items()}


def main() -> None:
    began = time.monotonic()
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = {}
    for kind in ("random", "known"):
        made.make(source, folder / kind, kind)
    seen = questions(folder / "seen", True)
    found["brute"] = brute.scores(folder / "random", seen, folder / "by brute")
    found["score"] = run("score", folder / "random", seen, "--out", folder / "by brute")
    found["scores"] = files(folder / "by brute")
    known, heard, scores = folder / "known", questions(folder / "heard", False), folder / "scores"
    found["undisturbed"] = run("score", known, heard, "--out", scores)
    found["thinker alone"] = files(scores)
    found["killed"] = killed(known, heard, folder / "killed", "thinker: layer 2")
    found["full"] = full(known, heard, folder / "full")
    found["answered"] = run(
        "score", known, heard, "--out", scores, "--answers", "--max-tokens", 6, "--max-speech", 0.8
    )
    found["left"] = sorted(path.name for path in scores.iterdir())
    found["both"] = files(scores)
    said = folder / "killed in the talker"
    said.mkdir()
    shutil.copy(scores / "answers.jsonl", said)
    found["killed in the talker"] = killed(known, heard, said, "talker: layer 1")
    found |= costs(known, heard, scores, folder)
    found["refusals"] = refusals(known, source, heard, scores, folder)
    found["seconds"] = time.monotonic() - began
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
