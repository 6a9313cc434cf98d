"""Lines without an end, NUL bytes, other bytes, and files that cannot be read."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from helpers.event_files import MUCH, Reader, append, drain, line, lines, open_folder, without_privileges
from omniwatch.events import MAX_LINE_BYTES
from omniwatch.sources.tail import Tail

NOTHING = {"nul": 0, "oversize": 0, "truncated": 0}


def test_a_line_without_an_end_is_dropped_in_bounded_memory(path: Path) -> None:
    megabytes = 64
    with path.open("wb") as file:
        file.write(line(0))
        for _ in range(megabytes):
            file.write(b"x" * (1 << 20))
    tail = Tail(path)
    tracemalloc.start()
    try:
        assert drain(tail, 1 << 18) == line(0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 19
    append(path, b"x\n" + line(1))
    assert drain(tail) == line(1)
    assert tail.invalid == NOTHING | {"oversize": 1}


def test_the_middle_of_a_line_that_is_too_long_survives_a_restart(path: Path) -> None:
    append(path, line(0) + b"x" * 200_000)
    first = Tail(path)
    assert drain(first, 1) == line(0)
    append(path, b"x" * 200_000 + b"\n" + line(1))
    second = Tail(path)
    second.restore(first.state())
    assert drain(second) == line(1)
    assert (first.invalid["oversize"], second.invalid["oversize"]) == (1, 0)


@pytest.mark.parametrize("size", [MAX_LINE_BYTES - 1, MAX_LINE_BYTES])
def test_a_line_of_the_greatest_length_is_whole(path: Path, size: int) -> None:
    text = line(0) + b"y" * size + b"\n" + line(1)
    append(path, text)
    tail = Tail(path)
    assert drain(tail) == text
    assert tail.invalid == NOTHING


def test_a_line_one_byte_longer_is_dropped_though_it_ends(path: Path) -> None:
    append(path, line(0) + b"y" * (MAX_LINE_BYTES + 1) + b"\n" + line(1))
    tail = Tail(path)
    assert drain(tail) == line(0) + line(1)
    assert tail.invalid == NOTHING | {"oversize": 1}


def test_nul_bytes_of_a_writer_that_keeps_its_offset_over_a_truncation(path: Path) -> None:
    tail = Tail(path)
    with path.open("wb", buffering=0) as writer:
        writer.write(lines(range(3000)))
        drain(tail)
        os.truncate(path, 0)
        writer.write(line(3000) + line(3001))
    assert drain(tail, 1) == line(3000) + line(3001)
    assert tail.invalid == NOTHING | {"nul": 1}


@pytest.mark.parametrize("run", [1, 1000, 300_000])
def test_a_run_of_nul_bytes_ends_a_line_and_is_counted_once(path: Path, run: int) -> None:
    append(path, line(0) + b'{"ev":"au' + b"\0" * run + line(1) + line(2)[:-1] + b"\0\n" + line(3))
    tail = Tail(path)
    assert drain(tail, 1) == line(0) + b'{"ev":"au\n' + line(1) + line(2) + line(3)
    assert tail.invalid == NOTHING | {"nul": 2}


def test_a_run_of_nul_bytes_that_grows_between_reads_is_one(path: Path) -> None:
    tail = Tail(path)
    for part in (line(0), b"\0" * 100, b"\0" * 100, b"\0" + line(1)):
        append(path, part)
        tail.read(MUCH)
    assert tail.invalid == NOTHING | {"nul": 1}


def test_invalid_utf8_is_passed_on_and_costs_only_its_own_line(path: Path) -> None:
    bad = b'{"ev":"video","t":1,"stream":"\xff\xfe","pts_ms":0}\n'
    append(path, line(0) + bad + line(1))
    assert Tail(path).read(MUCH) == line(0) + bad + line(1)
    reader = Reader(Tail(path))
    reader.drain()
    assert set(reader.counts) == {("a", 0), ("a", 1)}
    assert reader.invalid == {"encoding": 1}


def test_a_folder_in_the_files_place_is_an_error_until_it_is_gone(path: Path) -> None:
    path.mkdir()
    tail = Tail(path)
    assert tail.read(MUCH) == b""
    assert (tail.up, tail.error, tail.caught_up) == (False, f"{path}: not a regular file", False)
    path.rmdir()
    append(path, line(0))
    assert drain(tail) == line(0)
    assert tail.up


def test_a_file_that_may_not_be_read_is_an_error_until_it_may() -> None:
    with open_folder() as folder:
        path = folder / "events.jsonl"
        append(path, line(0))
        path.chmod(0)
        tail = Tail(path)
        with without_privileges():
            assert tail.read(MUCH) == b""
            assert (tail.up, tail.error) == (False, f"{path}: Permission denied")
        path.chmod(0o644)
        with without_privileges():
            assert tail.read(MUCH) == line(0)
        assert tail.up


def test_a_new_file_that_may_not_be_read_yet_costs_nothing_of_the_old() -> None:
    with open_folder() as folder:
        path = folder / "events.jsonl"
        tail = Tail(path)
        append(path, line(0) + line(1)[:-1])
        with without_privileges():
            assert drain(tail) == line(0)
        path.unlink()
        append(path, line(2))
        path.chmod(0)
        for _ in range(2):
            with without_privileges():
                assert tail.read(MUCH) == b""
            assert (tail.up, tail.caught_up) == (False, False)
        path.chmod(0o644)
        with without_privileges():
            assert drain(tail) == line(1) + line(2)


def test_a_folder_that_may_not_be_searched_is_an_error_until_it_may(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    append(folder / "events.jsonl", line(0))
    folder.chmod(0)
    tail = Tail(folder / "events.jsonl")
    with without_privileges():
        assert tail.read(MUCH) == b""
        assert tail.error == f"{tail.path}: Permission denied"
        assert not tail.caught_up
    folder.chmod(0o755)
    assert tail.read(MUCH) == line(0)


def test_an_error_of_the_device_is_said_and_outlived(path: Path) -> None:
    """The memory of a process is a regular file whose first page cannot be read: EIO."""
    path.symlink_to("/proc/self/mem")
    tail = Tail(path)
    for _ in range(3):
        assert tail.read(MUCH) == b""
        assert (tail.up, tail.error, tail.caught_up) == (False, f"{path}: Input/output error", False)
    path.unlink()
    append(path, line(0))
    assert drain(tail) == line(0)
    assert tail.up
