from __future__ import annotations

import os
import pty
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.waiting import wait_until
from omniwatch.events import MAX_LINE_BYTES
from omniwatch.sources import Source, SourceError
from omniwatch.sources.stdin import Stdin

A = b'{"ev":"video","t":1,"stream":"s","pts_ms":0}\n'


class Pipe:
    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()

    def write(self, data: bytes) -> None:
        assert os.write(self.write_fd, data) == len(data)

    def end(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.read_fd)
    if pipe.write_fd >= 0:
        pipe.end()


def drain(source: Source) -> bytes:
    got = b""
    while not source.caught_up:
        got += source.read(1 << 20)
    return got


def test_nothing_there_does_not_block(pipe: Pipe) -> None:
    source: Source = Stdin(pipe.read_fd)
    assert source.read(1000) == b""
    assert source.up
    assert source.caught_up
    assert source.error is None


def test_lines_come_whole(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A + A[:10])
    assert source.read(1000) == A
    pipe.write(A[10:])
    assert source.read(1000) == A
    assert source.caught_up


def test_the_budget_bounds_what_is_taken(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A * 100)
    first = source.read(10 * len(A) + 3)
    assert first == A * 10
    assert not source.caught_up
    assert first + source.read(1 << 20) == A * 100


def test_the_descriptor_stays_blocking(pipe: Pipe) -> None:
    Stdin(pipe.read_fd).read(1000)
    assert os.get_blocking(pipe.read_fd)


def test_end_of_input_leaves_it_down_and_nothing_unread(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A)
    pipe.end()
    assert source.read(1 << 20) == A
    assert (source.up, source.error, source.caught_up) == (False, "end of input", True)
    assert source.read(1000) == b""
    assert source.invalid == {}


def test_a_whole_last_line_without_an_end_is_delivered(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A + A.rstrip())
    pipe.end()
    assert source.read(1 << 20) == A + A
    assert source.invalid == {}


@pytest.mark.parametrize("rest", [A[:-2], b'{"a":', b"12", b"\xff", b"[" * 5000])
def test_a_last_line_cut_short_is_counted(pipe: Pipe, rest: bytes) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A + rest)
    pipe.end()
    assert source.read(1 << 20) == A
    assert source.invalid == {"truncated": 1}


def test_blank_rest_is_no_line(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A + b"  ")
    pipe.end()
    assert source.read(1 << 20) == A
    assert source.invalid == {}


@pytest.mark.parametrize(
    ("size", "passes"), [(MAX_LINE_BYTES, True), (MAX_LINE_BYTES + 1, False), (300_000, False)]
)
def test_lines_are_bounded(tmp_path: Path, size: int, passes: bool) -> None:
    long = b"x" * size + b"\n"
    path = tmp_path / "events"
    path.write_bytes(A + long + A)
    with path.open("rb") as file:
        source = Stdin(file.fileno())
        assert drain(source) == A + (long if passes else b"") + A
    assert source.invalid == ({} if passes else {"oversize": 1})


def test_counts_start_again_when_the_reader_has_taken_them(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"x" * 70_000 + b"\n")
    with path.open("rb") as file:
        source = Stdin(file.fileno())
        source.read(1 << 20)
        source.invalid.clear()
        drain(source)
    assert source.invalid == {}


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(A * 5000)
    with path.open("rb") as file:
        source = Stdin(file.fileno())
        assert drain(source) == A * 5000
        assert source.error == "end of input"


def test_a_terminal_is_read_line_by_line() -> None:
    master, slave = pty.openpty()
    try:
        source = Stdin(slave)
        assert source.read(1000) == b""
        os.write(master, A)
        assert wait_until(lambda: source.read(1000)) == A
        assert source.up
    finally:
        os.close(master)
        os.close(slave)


def test_a_terminal_that_hangs_up_is_the_end() -> None:
    master, slave = pty.openpty()
    try:
        source = Stdin(slave)
        os.close(master)
        assert wait_until(lambda: source.read(1000) == b"" and not source.up)
        assert source.error
        assert source.caught_up
    finally:
        os.close(slave)


def test_every_line_of_a_busy_writer_arrives_once(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    wanted = b"".join(b'{"n":%d}\n' % number for number in range(50_000))

    def write() -> None:
        at = 0
        while at < len(wanted):
            at += os.write(pipe.write_fd, wanted[at : at + 7919])
        pipe.end()

    writer = threading.Thread(target=write)
    writer.start()
    got: list[bytes] = []
    wait_until(lambda: got.append(source.read(10_000)) or not source.up)
    writer.join()
    assert b"".join(got) == wanted


def test_there_is_no_position_to_keep(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    pipe.write(A)
    source.restore({"offset": 17})
    assert source.read(1000) == A
    assert source.state() == {}


def test_close_leaves_the_descriptor_open(pipe: Pipe) -> None:
    source = Stdin(pipe.read_fd)
    source.close()
    pipe.write(A)
    assert source.read(1000) == b""
    assert os.read(pipe.read_fd, 1000) == A


def test_a_closed_descriptor_is_a_users_error(pipe: Pipe) -> None:
    spare = os.dup(pipe.read_fd)
    os.close(spare)
    with pytest.raises(SourceError, match=r"^-: standard input is closed; give it a pipe or a file$"):
        Stdin(spare)


def test_a_directory_is_a_users_error(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(SourceError, match="is a directory"):
            Stdin(fd)
    finally:
        os.close(fd)


def test_a_descriptor_closed_under_it_is_reported() -> None:
    pipe = Pipe()
    source = Stdin(pipe.read_fd)
    os.close(pipe.read_fd)
    assert source.read(1000) == b""
    assert source.error == "Bad file descriptor"
    pipe.end()
