"""Files that are renamed, replaced, switched, and found again after a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.event_files import MUCH, Reader, append, drain, line, lines, rename_rotation
from omniwatch.sources.tail import Tail


def test_a_partial_last_line_of_a_rotated_file_is_counted(path: Path) -> None:
    reader = Reader(Tail(path))
    append(path, lines(range(3)) + line(3)[:25])
    reader.drain()
    rename_rotation(path)
    append(path, lines(range(4, 6)))
    reader.drain()
    assert set(reader.counts) == {("a", number) for number in (0, 1, 2, 4, 5)}
    assert reader.sequence.lost == 1
    tail = reader.source
    assert isinstance(tail, Tail)
    assert tail.invalid == {"nul": 0, "oversize": 0, "truncated": 1}
    assert tail.rotations == 1


def test_a_last_line_that_only_lacks_its_end_is_returned(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(3)) + line(3)[:-1])
    assert drain(tail) == lines(range(3))
    rename_rotation(path)
    append(path, line(4))
    assert drain(tail) == lines(range(3, 5))
    assert tail.invalid["truncated"] == 0


@pytest.mark.parametrize("rest", [b"12", b'"word"', b"[1]", b'{"a":\xff}', b"[" * 60_000, b'{"a":' * 9_000])
def test_a_last_line_that_is_no_object_is_truncated(path: Path, rest: bytes) -> None:
    tail = Tail(path)
    append(path, line(0) + rest)
    tail.read(MUCH)
    rename_rotation(path)
    append(path, line(1))
    assert drain(tail) == line(1)
    assert tail.invalid["truncated"] == 1


def test_a_last_line_that_is_too_long_is_counted_once(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0) + b"x" * 100_000)
    tail.read(MUCH)
    rename_rotation(path)
    append(path, line(1))
    assert drain(tail) == line(1)
    assert tail.invalid == {"nul": 0, "oversize": 1, "truncated": 0}


def test_the_old_file_is_heard_until_the_new_one_has_its_first_byte(path: Path) -> None:
    """The writer still has it open, as a log rotated by another does until it is told."""
    tail = Tail(path)
    with path.open("ab", buffering=0) as writer:
        writer.write(line(0))
        drain(tail)
        rename_rotation(path)
        assert tail.read(MUCH) == b""
        assert not tail.up
        writer.write(line(1))
        assert tail.read(MUCH) == line(1)
        path.touch()
        assert tail.read(MUCH) == b""
        assert (tail.up, tail.caught_up) == (True, True)
        writer.write(line(2))
        assert tail.read(MUCH) == line(2)
        writer.write(line(3))
    append(path, line(4))
    assert drain(tail) == line(3) + line(4)
    assert tail.rotations == 1


def test_rotations_between_two_reads_are_read_in_order(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    for turn in range(1, 5):
        append(path, lines(range(10 * turn, 10 * turn + 5)))
        rename_rotation(path)
        append(path, lines(range(10 * turn + 5, 10 * turn + 10)))
    assert tail.read(0) == b""
    assert drain(tail, 1) == lines(range(10, 50))
    assert (tail.rotations, tail.bytes_behind) == (4, 0)


def test_a_file_that_came_and_went_without_a_whole_line_holds_up_nothing(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    for partial in (line(1)[:9], b"", line(2)[:-1]):
        rename_rotation(path)
        append(path, partial)
    rename_rotation(path)
    append(path, line(3))
    assert drain(tail) == line(2) + line(3)
    assert tail.invalid["truncated"] == 1


def test_a_line_begun_before_the_rotation_and_ended_after_it_is_whole(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    rename_rotation(path)
    with path.open("ab", buffering=0) as writer:
        writer.write(line(1)[:9])
        rename_rotation(path)
        path.touch()
        assert drain(tail) == b""
        writer.write(line(1)[9:])
    assert drain(tail) == line(1)


def test_a_rotation_into_an_empty_file_does_not_hold_back_what_lies_between(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    rename_rotation(path)
    append(path, line(1))
    rename_rotation(path)
    path.touch()
    assert drain(tail) == line(1)


def test_a_file_removed_and_made_anew_is_read_to_its_end_and_from_its_first_byte(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    append(path, line(1))
    path.unlink()
    assert drain(tail) == line(1)
    assert (tail.up, tail.error) == (False, f"{path}: No such file or directory")
    append(path, line(2))
    assert drain(tail) == line(2)
    assert tail.up


def test_a_file_replaced_by_its_copy_is_read_on(path: Path) -> None:
    """As an editor, or `sed -i`, leaves it."""
    tail = Tail(path)
    append(path, lines(range(3)))
    tail.read(MUCH)
    shutil.copyfile(path, path.with_name("new"))
    append(path.with_name("new"), line(3))
    path.with_name("new").replace(path)
    assert drain(tail) == line(3)


def test_a_symbolic_link_switched_to_another_file(path: Path) -> None:
    targets = [path.with_name(f"run-{number}") for number in range(3)]
    tail = Tail(path)
    for number, target in enumerate(targets):
        append(target, line(10 * number) + line(10 * number + 1))
        path.with_name("link").symlink_to(target)
        path.with_name("link").replace(path)
        if number:
            append(targets[number - 1], line(10 * number - 8))
        expected = [10 * number - 8] * bool(number) + [10 * number, 10 * number + 1]
        assert drain(tail) == lines(expected)
    assert tail.rotations == 2


def test_a_link_switched_among_its_own_siblings_reads_each_once(path: Path) -> None:
    tail = Tail(path)
    days = [path.with_name(f"events.jsonl-2026010{day}") for day in range(4)]
    for number, day in enumerate(days):
        append(day, line(number))
        path.with_name("link").symlink_to(day)
        path.with_name("link").replace(path)
        if number != 1:
            drained = drain(tail)
    assert drained == line(3)


def test_a_dangling_link_is_as_an_absent_file(path: Path) -> None:
    path.symlink_to(path.with_name("target"))
    tail = Tail(path)
    assert tail.read(MUCH) == b""
    assert tail.error == f"{path}: No such file or directory"
    append(path.with_name("target"), line(0))
    assert tail.read(MUCH) == line(0)


def test_while_something_else_stands_in_its_place_there_is_something_unread(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    drain(tail)
    rename_rotation(path)
    path.mkdir()
    assert tail.read(MUCH) == b""
    assert not tail.caught_up


def test_what_is_left_is_the_sum_over_all_files(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(5000)))
    first = tail.read(1)
    rename_rotation(path)
    append(path, lines(range(5000, 6000)))
    rename_rotation(path)
    append(path, lines(range(6000, 7000)))
    second = tail.read(1)
    total = sum(file.stat().st_size for file in path.parent.iterdir())
    assert tail.bytes_behind == total - len(first) - len(second)
    assert drain(tail)[-100:] == lines(range(6990, 7000))[-100:]
    assert tail.bytes_behind == 0
