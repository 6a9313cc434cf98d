"""A reader that is stopped or killed, and what it finds when it is back."""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers.event_files import (
    MUCH,
    Reader,
    aged,
    append,
    copytruncate,
    drain,
    line,
    lines,
    open_folder,
    rename_rotation,
    without_privileges,
)
from omniwatch.sources.tail import Tail


def restarted(tail: Tail) -> Tail:
    """Return what a new process makes of the old one's state."""
    new = Tail(tail.path)
    new.restore(tail.state())
    tail.close()
    return new


def test_a_restart_at_any_point_returns_each_line_once(path: Path) -> None:
    """Read after read by a new process, while the file is written, rotated, cut and copied."""
    tail = Tail(path)
    drain(tail)
    got = b""
    for number in range(60):
        append(path, line(number) + (b"x" * 70_000 + b"\n" if number % 7 == 0 else b""))
        if number % 5 == 1:
            rename_rotation(path)
        if number % 11 == 3 and path.exists():
            copytruncate(path)
        for _ in range(number % 3):
            tail = restarted(tail)
            got += tail.read(1)
    while not tail.caught_up:
        tail = restarted(tail)
        got += tail.read(1)
    assert got == lines(range(60))


def test_rotations_while_down_are_read_up_from_where_it_stopped(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    append(path, lines(range(10, 15)))
    for number in (15, 20):
        rename_rotation(path)
        append(path, lines(range(number, number + 5)))
    assert drain(restarted(tail)) == lines(range(10, 25))


def test_what_was_rotated_away_and_deleted_while_down_is_counted_as_lost(path: Path) -> None:
    reader = Reader(Tail(path))
    append(path, lines(range(10)))
    reader.drain()
    append(path, lines(range(10, 15)))
    for number in (15, 20):
        rename_rotation(path)
        append(path, lines(range(number, number + 5)))
    path.with_name("events.jsonl.2").unlink()
    reader = reader.save().resume(Tail(path))
    reader.drain()
    assert set(reader.counts) == {("a", number) for number in (*range(10), *range(15, 25))}
    assert (reader.sequence.lost, reader.sequence.repeated) == (5, 0)
    assert reader.source.rotations == 2


def test_a_copy_older_than_the_last_line_read_is_not_read_when_the_file_is_gone(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    aged(path, 0)
    tail.read(MUCH)
    copy = path.with_name("events.jsonl.1-copy")
    shutil.copyfile(path, copy)
    aged(copy, 1)
    append(path, line(1))
    aged(path, 2)
    tail.read(MUCH)
    path.unlink()
    append(path, line(2))
    assert drain(restarted(tail)) == line(2)


def test_a_sibling_that_may_not_be_read_does_not_stop_a_restart() -> None:
    with open_folder() as folder:
        path = folder / "events.jsonl"
        append(path, line(0))
        tail = Tail(path)
        with without_privileges():
            tail.read(MUCH)
        append(path, line(1))
        path.chmod(0)
        rename_rotation(path)
        append(path, line(2))
        tail = restarted(tail)
        with without_privileges():
            assert drain(tail) + drain(tail) == line(2)


def test_a_copytruncate_while_down_is_read_from_the_copy(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    append(path, lines(range(10, 15)))
    copytruncate(path)
    append(path, lines(range(20, 50)))
    tail = restarted(tail)
    assert drain(tail) == lines(range(10, 15)) + lines(range(20, 50))
    assert tail.truncations == 1


def test_an_inode_used_anew_while_down_is_not_taken_for_the_old_file(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    # The same inode with other content is what a reused one looks like, and which one is reused cannot be chosen.
    path.write_bytes(lines(range(100, 150)))
    tail = restarted(tail)
    assert drain(tail) == lines(range(100, 150))


def test_a_file_moved_to_another_device_while_down_is_known_by_its_content(path: Path) -> None:
    """As after a restore from a backup, or when a container's mount got another number."""
    tail = Tail(path)
    append(path, lines(range(10)))
    tail.read(MUCH)
    shutil.copyfile(path, path.with_name("new"))
    path.with_name("new").replace(path)
    append(path, line(10))
    tail = restarted(tail)
    assert drain(tail) == line(10)
    assert (tail.rotations, tail.truncations) == (0, 0)


def test_the_time_before_the_file_is_part_of_the_state(path: Path) -> None:
    tail = Tail(path)
    tail.read(MUCH)
    tail = restarted(tail)
    append(path, line(0))
    rename_rotation(path)
    append(path, line(1))
    assert drain(tail) == line(0) + line(1)
