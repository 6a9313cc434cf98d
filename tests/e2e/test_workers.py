"""Four processes of a server write one event file under load, while it is rotated and one of them is killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.paths import TESTS
from helpers.scripted_tap import CHAT
from helpers.waiting import wait_until
from omniwatch.core.streams import StreamTable
from omniwatch.desk.child_process import free_port
from omniwatch.ingest.intake import Intake
from omniwatch.settings import Settings
from omniwatch.sources.tail import Tail

pytestmark = pytest.mark.slow
WORKERS = 4
CALLERS = 6
ROTATE_BYTES = 100_000
"""Two such files are kept beside the one that is written."""
FEW, MANY = 120, 480
"""Turns whose lines fit into the files that are kept, and turns whose lines do not."""
READ_BYTES = 1 << 16
ASKED = json.dumps({"stream": True, "messages": [], "user": "ada"}).encode()


class Reader:
    """A sidecar's reading of the event file, in a thread, that can be held up."""

    def __init__(self, path: Path) -> None:
        self.intake = Intake(Tail(path))
        self.table = StreamTable(Settings())
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.is_over.wait(0.002):
            self.may_read.wait()
            while self.intake.step(self.table, READ_BYTES):
                pass

    def __enter__(self) -> Reader:
        self.intake.step(self.table, READ_BYTES)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_read.set()
        self.is_over.set()
        self._thread.join()
        while self.intake.step(self.table, READ_BYTES):
            pass

    @property
    def counted(self) -> int:
        return sum(self.intake.counts.events.values())


@contextmanager
def served(events: Path, notes: Path) -> Iterator[int]:
    """Serve with uvicorn's processes; give the port. They end in order."""
    port = free_port()
    command = [
        "uvicorn",
        "helpers.worker_app:app",
        f"--workers={WORKERS}",
        f"--port={port}",
        "--log-level=error",
        "--timeout-worker-healthcheck=60",
    ]
    environ = {
        "OMNIWATCH_EVENTS": str(events),
        "OMNIWATCH_EVENTS_MAX_BYTES": str(ROTATE_BYTES),
        "WORKER_NOTES": str(notes),
        "PYTHONPATH": str(TESTS),
    }
    with subprocess.Popen([sys.executable, "-m", *command], env={**os.environ, **environ}) as server:
        try:
            wait_until(lambda: asked(port), what="a process answers")
            yield port
        finally:
            server.terminate()
            server.wait(20)


def asked(port: int) -> bool:
    """Have one turn on a connection of its own; return whether it was answered whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", CHAT, ASKED, {"Content-Type": "application/json"})
        return connection.getresponse().read().endswith(b"data: [DONE]\n\n")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def load(port: int, turns: int) -> int:
    """Have so many turns, several at once; return how many were answered whole."""
    answered: list[bool] = []

    def call() -> None:
        for _ in range(turns // CALLERS):
            answered.append(asked(port))

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return sum(answered)


def noted(notes: Path, what: str) -> dict[int, int]:
    """How many lines each process has noted."""
    return {int(path.stem): path.stat().st_size for path in notes.glob(f"*.{what}")}


def all_went_on(before: dict[int, int], now: dict[int, int], killed: int) -> bool:
    """Whether every process that lives has written since."""
    return all(now[pid] > before[pid] for pid in before if pid != killed)


def test_what_is_written_is_counted_once_or_counted_as_lost(tmp_path):
    events, notes = tmp_path / "events.jsonl", tmp_path / "notes"
    notes.mkdir()
    with Reader(events) as reader, served(events, notes) as port:

        def has_read() -> bool:
            return reader.counted + reader.intake.sequence.lost >= sum(noted(notes, "done").values())

        def have_served(processes: int) -> bool:
            return load(port, CALLERS) > 0 and len(noted(notes, "done")) == processes

        answered = 1 + load(port, FEW)
        wait_until(lambda: have_served(WORKERS), what="all processes served")
        wait_until(has_read)
        killed = min(noted(notes, "done"))
        os.kill(killed, signal.SIGKILL)
        load(port, FEW)
        wait_until(lambda: have_served(WORKERS + 1), what="another in its place")
        wait_until(has_read)
        # A line on its way while another process rotates may go where the reader looks no more: it is counted as lost.
        assert reader.intake.sequence.lost <= WORKERS, "what a process takes with it was never written"
        assert reader.table.totals.turns["completed"] >= answered

        reader.may_read.clear()
        load(port, MANY)
        before = noted(notes, "done")
        reader.may_read.set()
        wait_until(lambda: load(port, CALLERS) and all_went_on(before, noted(notes, "done"), killed))
    begun, done = (sum(noted(notes, what).values()) for what in ("begun", "done"))
    assert done <= begun <= done + 1, "only the one that was killed may have left a line half noted"
    sequence = reader.intake.sequence
    assert done <= reader.counted + sequence.lost <= begun
    assert sequence.lost > 0
    assert sequence.repeated == 0
    assert len(noted(notes, "done")) == WORKERS + 1
    assert events.with_name("events.jsonl.2").exists()
