"""The event file: whole numbered lines, a bound in size, trouble that costs events and nothing else."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniwatch import events as ev
from omniwatch.tap.spool import Spool


def video(pts_ms: float = 0.0, stream: str = "a") -> ev.Video:
    return ev.Video(t=1.0, stream=stream, pts_ms=pts_ms)


def lines(path: Path) -> list[ev.AnyEvent | ev.Unknown | ev.Invalid]:
    return ev.decode_lines(path.read_bytes())


def numbers(*paths: Path) -> list[int]:
    return [event.n for path in paths for event in lines(path) if not isinstance(event, ev.Invalid)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_lines_are_numbered_and_named(path):
    spool = Spool(path, writer="me")
    for n in range(3):
        spool.write(video(n * 80))
    spool.close()
    assert lines(path) == [ev.Video(t=1.0, stream="a", pts_ms=n * 80, w="me", n=n) for n in range(3)]


def test_a_link_in_the_files_place_is_not_followed(path, tmp_path):
    other = tmp_path / "other"
    other.write_text("the server's own\n")
    spool = Spool(path)
    spool.write(video())
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        spool.write(video())
    assert other.read_text() == "the server's own\n"
    path.unlink()
    spool.write(video())
    assert numbers(path) == [2]


def test_each_writer_has_an_id_of_its_own(path):
    for _ in range(2):
        Spool(path).write(video())
    first, second = lines(path)
    assert first.w != second.w
    assert first.n == second.n == 0


def test_a_line_is_on_disk_when_write_returns(path):
    Spool(path).write(video())
    assert path.read_bytes().endswith(b"}\n")


def test_nothing_is_opened_before_the_first_line(path):
    Spool(path).close()
    assert not path.exists()


def test_dropped_events_use_up_their_numbers(path):
    spool = Spool(path)
    spool.write(video())
    spool.skip(5)
    spool.write(video())
    assert numbers(path) == [0, 6]


def test_a_close_is_not_the_end(path):
    spool = Spool(path)
    spool.write(video())
    spool.close()
    spool.write(video())
    assert numbers(path) == [0, 1]


@settings(max_examples=30)
@given(st.integers(80, 2000), st.integers(1, 4), st.integers(1, 120))
def test_rotation_bounds_every_file_and_keeps_the_newest(tmp_path_factory, max_bytes, keep, count):
    path = tmp_path_factory.mktemp("spool") / "events.jsonl"
    spool = Spool(path, max_bytes=max_bytes, keep=keep, writer="w")
    for _ in range(count):
        spool.write(video())
    spool.close()
    older = [path.with_name(f"{path.name}.{n}") for n in range(keep, 0, -1)]
    files = [file for file in (*older, path) if file.exists()]
    assert set(path.parent.iterdir()) == set(files)
    assert all(file.stat().st_size <= max_bytes for file in files)
    found = numbers(*files)
    assert found == list(range(count - len(found), count))
    assert len(files) == keep + 1 or found[0] == 0


def test_a_line_longer_than_the_bound_still_has_its_place(path):
    spool = Spool(path, max_bytes=10)
    for _ in range(3):
        spool.write(video())
    assert numbers(path) == [2]


def test_keeping_no_file_is_refused(path):
    with pytest.raises(ValueError, match="keep"):
        Spool(path, keep=0)


@pytest.mark.parametrize("remove", [True, False])
def test_a_file_that_was_removed_or_moved_is_made_again(path, remove):
    spool = Spool(path)
    spool.write(video())
    if remove:
        path.unlink()
    else:
        path.rename(path.with_suffix(".moved"))
    spool.write(video())
    assert numbers(path) == [1]


def test_a_half_line_of_a_run_before_is_closed_first(path):
    path.write_bytes(b'{"ev":"video","t":1,"str')
    Spool(path).write(video())
    half, whole = lines(path)
    assert isinstance(half, ev.Invalid)
    assert isinstance(whole, ev.Video)


@pytest.mark.parametrize("trouble", ["missing", "directory", "unwritable", "full"])
def test_trouble_raises_uses_up_the_number_and_passes(path, trouble):
    spool = Spool(path)
    target = path
    if trouble == "missing":
        spool = Spool(path.parent / "later" / "events.jsonl")
        target = spool.path
    elif trouble == "directory":
        path.mkdir()
    elif trouble == "unwritable":
        # Not even root may write this one.
        spool.path = Path("/proc/version")
    else:
        spool.path = Path("/dev/full")
    for _ in range(3):
        with pytest.raises(OSError, match=r"."):
            spool.write(video())
    if trouble == "missing":
        target.parent.mkdir()
    elif trouble == "directory":
        path.rmdir()
    else:
        spool.path = path
    spool.write(video())
    assert numbers(target) == [3]


SHORT_OF_ROOM = """
import resource, sys
from pathlib import Path
from omniwatch.events import Video
from omniwatch.tap.spool import Spool
spool = Spool(Path(sys.argv[1]), writer="w")
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), unlimited[1]))
for _ in range(10):
    try:
        spool.write(Video(t=1.0, stream="a", pts_ms=0.0))
    except OSError:
        print("failed")
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
spool.write(Video(t=1.0, stream="a", pts_ms=0.0))
"""


@pytest.mark.parametrize("room", [0, 1, 40, 56, 57, 58, 59, 60, 100, 119, 120, 121, 122, 300])
@pytest.mark.slow
def test_a_disk_that_fills_up_mid_line_leaves_no_half_line(path, room):
    command = [sys.executable, "-c", SHORT_OF_ROOM, str(path), str(room)]
    failed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = lines(path)
    written = 10 - len(failed)
    assert [event.n for event in found] == [*range(written), 10], "whole lines, each with its own number"


def test_writers_of_several_threads_and_processes_share_a_file(path):
    """Each has a spool of its own; rotation by one is noticed by the others and happens once."""
    keep, count, writers = 50, 300, 4

    def write(name: str) -> None:
        spool = Spool(path, max_bytes=4000, keep=keep, writer=name)
        for _ in range(count):
            spool.write(video())
        spool.close()

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: dict[str, set[int]] = {}
    for file in path.parent.iterdir():
        for event in lines(file):
            assert isinstance(event, ev.Video)
            found.setdefault(str(event.w), set()).add(event.n)
    assert found == {f"w{n}": set(range(count)) for n in range(writers)}


def test_rotation_waits_for_nobody(path):
    spool = Spool(path, max_bytes=100)
    spool.write(video())
    with path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        spool.write(video())
        assert numbers(path) == [0, 1]
    spool.write(video())
    assert numbers(path) == [2]
