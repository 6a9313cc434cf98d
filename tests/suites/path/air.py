"""What a listener with our client has of speech over real paths: by scenario, congestion control, codec and client.

    PYTHONPATH=tests .venv/bin/python tests/suites/path/air.py tests/data/path_air.json

runs all combinations with a hundred turns each (30 where the path carries one listener), prints them as a table and writes them: an
hour on a quiet machine, as root.
PATH_TURNS in the environment is how many turns each of the ten clients of a combination has (10).
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from helpers.clients import compile_cpp
from helpers.paths import CLONE, DATA
from omniwatch.desk.link.real import RealPath
from omniwatch.desk.link.summary import percentile
from omniwatch.system import atomic_write
from suites.path.listening import FRAME_MS, Listening, Turn
from suites.path.run import HERE, TRIES, BusyError, listen
from suites.path.speaking import Carried, Speaking
from suites.path.truth import Heard

AT_ONCE = 3
TURN_S = 9.92
"""Whole chunks."""
WARM_TURNS = 1
"""So many turns of each client count for underrun alone: they have no kept connection, and a handshake comes before them."""
CUTS = str(CLONE / "deploy" / "link" / "4g-10pct.yaml")
"""As 4g-10pct, and connections are cut."""
SCENARIOS = ("4g-10pct", "bursts", "down-500k", "handover", CUTS)
CONTROLS = ("cubic", "bbr")
CODECS = ("pcm16", "opus")
CLIENTS = ("python", "cpp")


class Cell(msgspec.Struct, frozen=True):
    """One combination, and how much of it is run."""

    scenario: str
    congestion: str
    codec: str
    client: str
    clients: int = 10
    turns: int = 10


class Found(msgspec.Struct):
    """What the listeners of one combination had.

    First speech is without the server's own time, on a kept connection. Lag is how much later than without a network each
    frame came, from the question on.
    """

    scenario: str
    congestion: str
    codec: str
    client: str
    turns: int
    failed: int
    first_p50_s: float
    first_p90_s: float
    underrun_s: float
    """Mean of a turn."""
    lag_p50_s: float
    lag_p90_s: float
    lag_max_s: float
    kb_per_s: float
    """Thousand bytes that the server's connections carried for each second of speech, repetitions included."""
    returns: int
    return_mean_s: float
    """How long after the player had run dry a return's first new frame came."""
    return_p99_s: float
    date: str
    load: float
    """Processes that wanted to run, over a minute."""


TURNS = int(os.environ.get("PATH_TURNS", "10"))
NARROW = "down-500k"
"""Carries one listener's PCM, so its listeners come one after the other, and have fewer turns in all."""
NARROW_TURNS = 3
"""For one of each client elsewhere."""
ALL = [
    Cell(*one, clients=1, turns=NARROW_TURNS * TURNS) if one[0] == NARROW else Cell(*one, turns=TURNS)
    for one in itertools.product(SCENARIOS, CONTROLS, CODECS, CLIENTS)
]


def measure(cell: Cell, seed: int, program: str) -> Found:
    """Run one combination until the carrier kept its times. Raises BusyError."""
    scenario = cell.scenario if "/" in cell.scenario else str(HERE / "scenarios" / f"{cell.scenario}.yaml")
    for attempt in range(TRIES):
        with tempfile.TemporaryDirectory() as name:
            file, connections = Path(name, "events.jsonl"), Path(name, "connections.jsonl")
            with RealPath(scenario, seed + attempt) as path:
                speaking = Speaking(
                    host=path.address,
                    events=str(file),
                    resumable=True,
                    congestion=cell.congestion,
                    turn_s=TURN_S,
                    voiced=True,
                    connections=str(connections),
                )
                listening = Listening(
                    host=path.address,
                    kind="cpp" if cell.client == "cpp" else "client",
                    turns=cell.turns,
                    clients=cell.clients,
                    opus=cell.codec == "opus",
                    program=program,
                )
                with asked_of_kernel(path) as controls:
                    turns = listen(path, speaking, listening)
            if path.believable:
                if controls != {cell.congestion}:
                    raise RuntimeError(f"{cell}: by INET_DIAG the connections had {sorted(controls)}")
                lines = connections.read_bytes().splitlines()
                carried = [msgspec.json.decode(line, type=Carried) for line in lines]
                return sum_up(cell, turns, carried, speaking)
        sys.stderr.write(f"{cell}, try {attempt + 1}: thrown away, {path.counts}\n")
    raise BusyError(f"{cell}: the machine was too busy {TRIES} times")


@contextmanager
def asked_of_kernel(path: RealPath) -> Iterator[set[str]]:
    """Collect which congestion controls the server's connections have: `ss` asks by INET_DIAG."""
    found: set[str] = set()
    over = threading.Event()

    def ask() -> None:
        command = path.within(path.server, "ss", "-tinH", "state", "established", "sport", "=", ":8000")
        while not over.wait(1.0):
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found.update(re.findall(r"^\t ([a-z]+) ", said, re.MULTILINE))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield found
    finally:
        over.set()
        asking.join()


def sum_up(cell: Cell, turns: list[Turn], carried: list[Carried], speaking: Speaking) -> Found:
    """Make figures of what was heard."""
    frames = round(speaking.chunk_ms / FRAME_MS)
    heard = [turn for turn in turns if turn.arrivals and not turn.error]
    lags, firsts, underruns = [], [], []
    by_client: dict[int, int] = {}
    for turn in heard:
        underruns.append(Heard(turn.arrivals, None).underrun_s)
        by_client[turn.client] = by_client.get(turn.client, 0) + 1
        if by_client[turn.client] <= WARM_TURNS:
            continue
        firsts.append(turn.arrivals[0][0] - turn.asked_t - speaking.think_s)
        for number, (at, _) in enumerate(turn.arrivals):
            made_s = speaking.think_s + number // frames * speaking.chunk_ms / 1000 / speaking.pace
            lags.append(at - turn.asked_t - made_s)
    returns = [late_s for turn in turns for late_s in turn.returns_s]
    sent = sum(one.sent_bytes for one in carried)
    return Found(
        scenario=f"{Path(cell.scenario).stem}, cut" if cell.scenario == CUTS else cell.scenario,
        congestion=cell.congestion,
        codec=cell.codec,
        client=cell.client,
        turns=len(heard),
        failed=len(turns) - len(heard),
        first_p50_s=round(percentile(firsts, 0.5), 3),
        first_p90_s=round(percentile(firsts, 0.9), 3),
        underrun_s=round(sum(underruns) / max(1, len(underruns)), 3),
        lag_p50_s=round(percentile(lags, 0.5), 3),
        lag_p90_s=round(percentile(lags, 0.9), 3),
        lag_max_s=round(max(lags, default=0.0), 3),
        kb_per_s=round(
            sent / 1000 / max(1.0, sum(len(turn.arrivals) for turn in heard) * FRAME_MS / 1000), 2
        ),
        returns=len(returns),
        return_mean_s=round(sum(max(0.0, one) for one in returns) / max(1, len(returns)), 3),
        return_p99_s=round(percentile(returns, 0.99), 3),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        load=round(os.getloadavg()[0], 1),
    )


def measure_all(cells: list[Cell], seed: int) -> list[Found]:
    """Run combinations side by side; those of a machine that was too busy are missing."""

    def one(cell: Cell) -> Found | None:
        try:
            found = measure(cell, seed, program)
        except BusyError as error:
            sys.stderr.write(f"{error}\n")
            return None
        sys.stderr.write(f"{row(found)}\n")
        return found

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        program = str(compile_cpp("listening", Path(folder), DATA, opus=True))
        return [found for found in pool.map(one, cells) if found is not None]


HEAD = (
    "| scenario | congestion control | codec | client | turns | first speech P50 / P90 (s) | underrun a turn (s) "
    "| lag P50 / P90 / max (s) | kB a second | returns | late by mean / P99 (s) |\n"
    "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def row(one: Found) -> str:
    """Return a row of the table."""
    returns = f"{one.returns} | {one.return_mean_s:.2f} / {one.return_p99_s:.2f}" if one.returns else "0 | -"
    return (
        f"| {one.scenario} | {one.congestion} | {one.codec} | {one.client} | {one.turns} "
        f"| {one.first_p50_s:.2f} / {one.first_p90_s:.2f} | {one.underrun_s:.2f} "
        f"| {one.lag_p50_s:.2f} / {one.lag_p90_s:.2f} / {one.lag_max_s:.1f} | {one.kb_per_s:.1f} | {returns} |"
    )


def table(found: list[Found]) -> str:
    """Return the table."""
    return "\n".join([HEAD, *(row(one) for one in found)])


def write(file: Path, found: list[Found]) -> None:
    """Write the figures, a line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(msgspec.json.encode(one).decode() for one in found)
    atomic_write.replace(file, f"[\n{rows}\n]\n".encode())


def main(file: Path) -> None:
    """Run all combinations."""
    found = measure_all(ALL, seed=1)
    write(file, found)
    sys.stdout.write(f"{table(found)}\n")
    if len(found) < len(ALL):
        sys.exit(f"{len(ALL) - len(found)} combinations are missing: the machine was too busy")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
