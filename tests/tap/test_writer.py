"""Events on their way to the spool: whatever happens to them, nobody waits, and the reader knows how many were lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers.scripted_tap import Tapped, disconnect, opening, read_events, said, says
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.ingest.sequence import SequenceTracker
from omniwatch.settings import Settings
from omniwatch.tap import Tap
from omniwatch.tap.writer import DEFAULT_PATH, EventWriter

MANY = 2**30


def video(n: float = 0.0) -> ev.Video:
    return ev.Video(t=1.0, stream="a", pts_ms=n)


def lost(path: Path) -> int:
    """What a reader that was there from the start takes for lost."""
    tracker = SequenceTracker(settled=True)
    for event in read_events(path):
        tracker.observe(event.w, event.n)
    return tracker.lost


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


@pytest.fixture
def warned(monkeypatch) -> list[str]:
    """What the tap says in the server's log."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger = logging.getLogger("omniwatch.tap")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.WARNING)
    return said


def test_events_reach_the_file_soon_and_in_order(path):
    writer = EventWriter(path, MANY)
    for n in range(500):
        writer.put(video(n))
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") == 500)
    assert [event.pts_ms for event in read_events(path)] == list(range(500))
    assert lost(path) == 0


def test_no_thread_runs_before_the_first_event_nor_after_the_end(path):
    def running() -> int:
        return sum(thread.name == "omniwatch-tap" for thread in threading.enumerate())

    before = running()
    writer = EventWriter(path, MANY)
    assert running() == before
    writer.put(video())
    assert running() == before + 1
    writer.close(10)
    assert running() == before
    writer.close(10)


def test_after_the_end_it_begins_anew(path):
    writer = EventWriter(path, MANY)
    for _ in range(2):
        writer.put(video())
        writer.close(10)
    first, second = read_events(path)
    assert first.n == second.n == 0
    assert first.w != second.w


def test_a_spool_that_does_not_take_them_drops_events_and_the_reader_counts_them(path, tmp_path, warned):
    """A pipe that nobody reads stands for a disk that hangs: it takes 64 KiB, then the writer is stuck."""
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = EventWriter(path, MANY, queue_events=50)
    for n in range(20_000):
        writer.put(video(n))
    assert warned == [f"the writer of {path} does not keep up: events are dropped"]
    copy = tmp_path / "copy"

    def read_out(last: float) -> bool:
        with copy.open("ab") as file:
            try:
                file.write(os.read(pipe, 1 << 20))
            except BlockingIOError:
                writer.put(video(last))
        return b'"pts_ms":20001' in copy.read_bytes()

    wait_until(lambda: read_out(20_001))
    os.close(pipe)
    whole = copy.read_bytes()
    copy.write_bytes(whole[: whole.rindex(b"\n") + 1])
    found = read_events(copy)
    assert lost(copy) == found[-1].n + 1 - len(found)
    assert lost(copy) > 10_000


def test_a_spool_in_trouble_costs_events_and_is_tried_again(tmp_path, warned):
    path = tmp_path / "later" / "events.jsonl"
    writer = EventWriter(path, MANY)
    for n in range(20):
        writer.put(video(n))
    wait_until(lambda: warned)
    path.parent.mkdir()
    for n in range(20, 30):
        writer.put(video(n))
    writer.close(10)
    found = read_events(path)
    assert [event.pts_ms for event in found][-10:] == list(range(20, 30))
    assert found[-1].n == 29
    assert lost(path) == 30 - len(found)
    message = f"{path}: No such file or directory: events are dropped"
    assert warned == [message], "said once, not for every event"


FORKED = """
import os, sys
from pathlib import Path
from omniwatch.events import Video
from omniwatch.tap.writer import DEFAULT_PATH, EventWriter
writer = EventWriter(Path(sys.argv[1]), 2**30)
def put(count):
    for n in range(count):
        writer.put(Video(t=1.0, stream="a", pts_ms=n))
put(10)
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        put(5)
        writer.close(10)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
put(3)
writer.close(10)
"""


def test_forked_processes_write_as_writers_of_their_own(path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, str(path)], check=True)
    counts: dict[str | None, list[int]] = {}
    for event in read_events(path):
        counts.setdefault(event.w, []).append(event.n)
    assert sorted(map(len, counts.values())) == [5, 5, 13]
    assert all(numbers == list(range(len(numbers))) for numbers in counts.values())


def test_the_tap_needs_little_to_be_imported():
    """What vLLM does not bring must not be asked for in its interpreter."""
    check = (
        "import sys; before = set(sys.modules); import omniwatch.tap;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(found) - {"typing_extensions"} == {"msgspec", "omniwatch"}


def test_importing_reads_no_environment_and_touches_no_file(path):
    check = "import omniwatch.tap as tap, threading; assert threading.active_count() == 1; print(tap.Tap.__module__)"
    environ = {**os.environ, "OMNIWATCH_EVENTS": str(path), "OMNIWATCH_EVENTS_MAX_BYTES": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", check], check=True, capture_output=True, text=True, env=environ
    )
    assert (done.stdout.strip(), done.stderr) == ("omniwatch.tap", "")
    assert not path.exists()


SPOKEN = [*opening(1), says(2, type="video.query", text="x"), disconnect(3)]


def test_the_environment_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("OMNIWATCH_EVENTS", str(tmp_path / "named.jsonl"))
    tapped = Tapped(tmp_path)
    tapped.path = tmp_path / "named.jsonl"
    tapped.tap = Tap(tapped.tap.app, clock=tapped.clock, monotonic=tapped.clock)
    tapped.connect(SPOKEN)
    assert [event[1] for event in said(tapped.events())] == ["stream_start", "turn", "turn_end", "stream_end"]


def test_the_default_is_where_the_sidecar_looks():
    assert Settings().sources == [f"tail:{DEFAULT_PATH}"]


def test_the_bound_of_the_environment_rotates(tmp_path):
    tapped = Tapped(tmp_path, OMNIWATCH_EVENTS_MAX_BYTES="400")
    for _ in range(20):
        tapped.connect(SPOKEN)
    tapped.events()
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 3
    assert max(sizes) <= 400


@pytest.mark.parametrize("text", ["nonsense", "0", "-5", "1e6"])
def test_a_bound_that_is_none_is_said_and_replaced(tmp_path, warned, text):
    Tapped(tmp_path, OMNIWATCH_EVENTS_MAX_BYTES=text)
    (message,) = warned
    assert message.startswith("OMNIWATCH_EVENTS_MAX_BYTES: expected a number of bytes > 0, got ")
