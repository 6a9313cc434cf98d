"""A connection that was kept saves the next question its handshake: both clients, after pauses, clean and on the 4G path.

PATH_CLIENTS in the environment is how many clients of each kind ask on the 4G path (16), PATH_SPREAD_S over how long they begin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import msgspec
import pytest

from helpers.clients import compile_cpp
from helpers.paths import DATA
from omniwatch.desk.link.real import RealPath
from suites.path.pausing import First, Pausing
from suites.path.run import FIRST, HERE, TRIES, BusyError
from suites.path.speaking import Speaking

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/net/tun").exists(),
        reason="namespaces need root, and /dev/net/tun",
    ),
    pytest.mark.timeout(1800),
]

PAUSES_S = [3.0, 20.0, 90.0]
CLIENTS = int(os.environ.get("PATH_CLIENTS", "16"))
SPREAD_S = float(os.environ.get("PATH_SPREAD_S", "60"))
SEED = int(os.environ.get("PATH_SEED", "1"))
WARM_S = 120.0
KINDS = [("python", 0.0), ("python", WARM_S), ("cpp", 0.0), ("cpp", WARM_S)]
CLEAN, LOSSY = "clean", "4g-10pct"

Found = dict[tuple[str, float], list[First]]
"""What was found by each kind of client: its language, and for how long it keeps a connection."""


def _measure(folder: Path, program: Path, scenario: str, clients: int) -> Found:
    for attempt in range(TRIES):
        with RealPath(str(HERE / "scenarios" / f"{scenario}.yaml"), SEED + attempt) as path:
            found = _ask(path, program, folder / f"{scenario}.jsonl", clients)
        if path.believable:
            return found
        sys.stderr.write(f"{scenario}, try {attempt + 1}: thrown away, {path.counts}\n")
    raise BusyError(f"{scenario}: the machine was too busy {TRIES} times")


def _ask(path: RealPath, program: Path, events: Path, number: int) -> Found:
    speaking = Speaking(host=path.address, events=str(events), resumable=True, turn_s=0.64)

    def command(script: str, plan: msgspec.Struct) -> list[str]:
        return [*FIRST, sys.executable, str(HERE / script), json.dumps(msgspec.to_builtins(plan))]

    def clients(kind: tuple[str, float]) -> list[First]:
        language, warm_s = kind
        plan = Pausing(
            url=f"http://{path.address}:8000",
            warm_s=warm_s,
            pauses_s=PAUSES_S,
            clients=number,
            spread_s=SPREAD_S,
            program=str(program) if language == "cpp" else "",
        )
        done = subprocess.run(
            path.within(path.client, *command("pausing.py", plan)), stdout=subprocess.PIPE, check=True
        )
        return [msgspec.json.decode(line, type=First) for line in done.stdout.splitlines()]

    server = subprocess.Popen(
        path.within(path.server, *command("speaking.py", speaking)), stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        with ThreadPoolExecutor(len(KINDS)) as pool:
            return dict(zip(KINDS, pool.map(clients, KINDS), strict=True))
    finally:
        server.terminate()
        server.wait()


def _took(firsts: list[First], *pauses_s: float) -> list[float]:
    return [first.ms for first in firsts if first.pause_s in pauses_s and first.reason == "done"]


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    plan = {CLEAN: 2, LOSSY: CLIENTS}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(len(plan)) as pool:
        folder = Path(name)
        program = compile_cpp("warm", folder, DATA)
        measured = pool.map(lambda row: _measure(folder, program, *row), plan.items())
        by_scenario = dict(zip(plan, measured, strict=True))
    for scenario, by_kind in by_scenario.items():
        for (language, warm_s), firsts in by_kind.items():
            for pause_s in PAUSES_S:
                took = _took(firsts, pause_s)
                sys.stdout.write(
                    f"{scenario:9}{language:7}{'kept' if warm_s else 'new':5} after {pause_s:2g} s:"
                    f" P50 {median(took):5.0f}, P90 {quantiles(took, n=10)[-1]:5.0f} ms, n {len(took)}\n"
                )
            took = _took(firsts, *PAUSES_S)
            sys.stdout.write(
                f"{scenario:9}{language:7}{'kept' if warm_s else 'new':5} all: P50 {median(took):5.0f},"
                f" P90 {quantiles(took, n=10)[-1]:5.0f} ms, n {len(took)}\n"
            )
    return by_scenario


languages = pytest.mark.parametrize("language", ["python", "cpp"])


@languages
@pytest.mark.parametrize("pause_s", PAUSES_S)
def test_a_kept_connection_saves_a_round_trip(found: dict[str, Found], language: str, pause_s: float) -> None:
    kept, new = (median(_took(found[CLEAN][language, warm_s], pause_s)) for warm_s in (WARM_S, 0.0))
    assert kept == pytest.approx(new - 100, abs=40)


@languages
def test_on_a_lossy_path_the_first_speech_comes_sooner(found: dict[str, Found], language: str) -> None:
    kept, new = (_took(found[LOSSY][language, warm_s], *PAUSES_S) for warm_s in (WARM_S, 0.0))
    assert len(kept) >= 0.95 * len(PAUSES_S) * CLIENTS
    assert median(kept) < median(new)
