"""One file that appears, grows and is truncated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.event_files import MUCH, Reader, append, copytruncate, drain, line, lines, rename_rotation
from omniwatch.events import MAX_LINE_BYTES
from omniwatch.sources import SourceError
from omniwatch.sources.tail import Tail

NOTHING = {"nul": 0, "oversize": 0, "truncated": 0}
NOBODY = 65534


def test_a_file_absent_at_start_is_read_from_its_first_byte(path: Path) -> None:
    tail = Tail(path)
    assert tail.read(MUCH) == b""
    assert (tail.up, tail.error) == (False, f"{path}: No such file or directory")
    assert tail.caught_up
    append(path, lines(range(3)))
    assert tail.read(MUCH) == lines(range(3))
    assert (tail.up, tail.error, tail.caught_up) == (True, None, True)


def test_a_file_that_is_there_at_the_first_start_is_read_from_its_first_byte(path: Path) -> None:
    append(path, lines(range(3)))
    assert Tail(path).read(MUCH) == lines(range(3))


def test_of_a_folder_that_is_not_there_nothing_is_known(path: Path) -> None:
    tail = Tail(path.parent / "later" / "events.jsonl")
    assert tail.read(MUCH) == b""
    assert not tail.caught_up
    assert tail.state() == {}


def test_a_line_is_returned_when_it_has_its_end(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0) + line(1)[:20])
    assert tail.read(MUCH) == line(0)
    assert (tail.caught_up, tail.bytes_behind) == (True, 20)
    assert tail.read(MUCH) == b""
    append(path, line(1)[20:])
    assert tail.read(MUCH) == line(1)
    assert tail.bytes_behind == 0


def test_a_read_returns_about_its_budget_and_says_what_is_left(path: Path) -> None:
    append(path, lines(range(10_000)))
    tail = Tail(path)
    first = tail.read(1)
    assert 0 < len(first) <= MAX_LINE_BYTES
    assert not tail.caught_up
    assert tail.bytes_behind == path.stat().st_size - len(first)
    assert first + drain(tail, 1) == lines(range(10_000))
    assert tail.bytes_behind == 0


def test_truncation_starts_at_the_first_byte(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(5)))
    tail.read(MUCH)
    path.write_bytes(lines([5]))
    assert tail.read(MUCH) == lines([5])
    assert (tail.truncations, tail.rotations) == (1, 0)


def test_truncation_is_noticed_while_the_file_is_still_empty(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(5)))
    tail.read(MUCH)
    os.truncate(path, 0)
    assert tail.read(MUCH) == b""
    append(path, lines([5]))
    assert drain(tail) == lines([5])
    assert tail.truncations == 1


@pytest.mark.parametrize("count", [1, 5, 6, 500])
def test_truncation_and_regrowth_to_any_size_is_noticed(path: Path, count: int) -> None:
    tail = Tail(path)
    append(path, lines(range(1000, 1005)))
    tail.read(MUCH)
    path.write_bytes(lines(range(2000, 2000 + count)))
    assert drain(tail) == lines(range(2000, 2000 + count))
    assert tail.truncations == 1


def test_truncation_and_regrowth_by_lines_of_equal_length_and_ends_is_noticed(path: Path) -> None:
    tail = Tail(path)
    append(path, b"".join(line(number, pad=500) for number in range(10, 15)))
    drain(tail)
    again = b"".join(line(number, pad=500) for number in range(20, 26))
    path.write_bytes(again)
    assert drain(tail) == again


def test_copytruncate_counts_every_line_once(path: Path) -> None:
    """Also the lines that no read had returned when the file was truncated: they are in the copy."""
    reader = Reader(Tail(path))
    reader.read()
    append(path, lines(range(100)))
    reader.drain()
    append(path, lines(range(100, 110)))
    copytruncate(path)
    reader.drain()
    append(path, lines(range(110, 120)))
    reader.drain()
    assert reader.counts == {("a", number): 1 for number in range(120)}
    assert (reader.sequence.lost, reader.sequence.repeated) == (0, 0)
    tail = reader.source
    assert isinstance(tail, Tail)
    assert (tail.truncations, tail.rotations) == (1, 0)


def test_copytruncate_twice_between_two_reads(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    append(path, lines(range(10, 20)))
    copytruncate(path)
    append(path, lines(range(20, 30)))
    copytruncate(path)
    append(path, lines(range(30, 40)))
    assert drain(tail) == lines(range(10, 40))


def test_copytruncate_of_a_file_that_was_never_read(path: Path) -> None:
    tail = Tail(path)
    drain(tail)
    append(path, lines(range(10)))
    copytruncate(path)
    append(path, lines(range(10, 20)))
    assert drain(tail) == lines(range(20))
    rename_rotation(path)
    append(path, lines(range(20, 30)))
    copytruncate(path)
    append(path, lines(range(30, 40)))
    assert drain(tail) == lines(range(20, 40))


def test_copytruncate_of_a_file_read_to_its_end_returns_nothing_twice(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    copytruncate(path)
    assert drain(tail) == b""
    append(path, lines(range(10, 12)))
    assert drain(tail) == lines(range(10, 12))


def test_what_a_truncation_destroyed_unread_is_counted_as_lost(path: Path) -> None:
    reader = Reader(Tail(path))
    append(path, lines(range(10)))
    reader.drain()
    append(path, lines(range(10, 17)))
    path.write_bytes(lines([17]))
    reader.drain()
    assert len(reader.counts) == 11
    assert reader.sequence.lost == 7


def test_a_writer_restarted_with_a_new_id_begins_at_nought(path: Path) -> None:
    reader = Reader(Tail(path))
    append(path, lines(range(5), "a") + lines(range(3), "b") + lines(range(2, 4), "c"))
    reader.sequence.settled = True
    reader.drain()
    assert len(reader.counts) == 10
    assert (reader.sequence.lost, reader.sequence.repeated) == (2, 0)


def test_a_closed_tail_goes_on_where_it_stopped(path: Path) -> None:
    append(path, lines(range(3)))
    tail = Tail(path)
    tail.read(MUCH)
    tail.close()
    append(path, lines(range(3, 5)))
    assert tail.read(MUCH) == lines(range(3, 5))


@pytest.mark.parametrize(
    "state",
    [
        {"offset": -1},
        {"offset": 2**63, "overlap": b"." * 1024},
        {"offset": 10, "overlap": b"short"},
        {"offset": "far"},
        {"dev": 1, "ino": 2, "offset": 3, "overlap": "abc", "skipping": 7, "mtime_ns": 0},
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(path: Path, state: dict[str, object]) -> None:
    append(path, lines(range(3)))
    tail = Tail(path)
    tail.read(MUCH)
    with pytest.raises(SourceError, match=r"^tail:.*events\.jsonl: not a position: .+$"):
        tail.restore(state)
    append(path, line(3))
    assert tail.read(MUCH) == line(3)
