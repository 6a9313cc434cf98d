"""Cut the tiny model, and run programs that need torch in the environment of the installed vLLM-Omni."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from helpers.paths import CLONE
from omniwatch.cli import main
from suites.omni.installation import directory
from suites.omni.server import ENVIRONMENT

SLICING = Path(__file__).parent / "slicing"
"""Programs that the installed vLLM-Omni's interpreter runs."""
EXPERTS = 4
KEPT = {
    "thinker": {0: [0, 1, 3], 1: [1, 2, 3], 2: [0, 2, 3]},
    "talker": {0: [1, 3], 1: [0, 2]},
}
"""Other numbers in the thinker and the talker, other experts in each layer."""


def cut(model: Path, folder: Path, kept: Mapping[str, Mapping[int, list[int]]]) -> Path:
    """Write the model with those experts alone to `folder`/out, and keep.json beside it."""
    parts = {
        part: {"experts": EXPERTS, "layers": {str(layer): numbers for layer, numbers in layers.items()}}
        for part, layers in kept.items()
    }
    digest = hashlib.sha256((model / "config.json").read_bytes()).hexdigest()
    (folder / "keep.json").write_text(json.dumps({"schema": 1, "config_sha256": digest, "parts": parts}))
    arguments = [str(model), str(folder / "out"), "--keep", str(folder / "keep.json")]
    done = CliRunner().invoke(main, ["slice", "apply", *arguments])
    assert done.exit_code == 0, done.output
    return folder / "out"


def run(*arguments: object) -> str:
    """Run the installed interpreter, with this package and these programs to import; return what it prints."""
    done = _done(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def program(name: str, *arguments: object) -> Any:
    """Run one of the programs; return the JSON that it prints."""
    return json.loads(run(SLICING / name, *arguments))


def _done(arguments: Sequence[object]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ENVIRONMENT
    # Threads that wait for each other make a small model slow on a machine with other work.
    environment["OMP_NUM_THREADS"] = "1"
    environment["PYTHONPATH"] = f"{CLONE / 'exporter'}:{SLICING}"
    return subprocess.run(
        [str(directory() / "venv/bin/python"), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
