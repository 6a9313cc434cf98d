"""Which of the files beside one belong to it, and what is made of those that cannot be read or are copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from helpers.event_files import (
    MUCH,
    aged,
    append,
    drain,
    line,
    lines,
    open_folder,
    rename_rotation,
    without_privileges,
)
from omniwatch.sources.rotation import MovedError, file_at, open_file
from omniwatch.sources.tail import Tail


@pytest.mark.parametrize(
    "name",
    ["events.jsonl-20260101", "events.jsonl.2026-01-01T10:00:00", "events.jsonl_3", "events.jsonl.old"],
)
def test_rotated_names(path: Path, name: str) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    path.rename(path.with_name("elsewhere"))
    append(path, line(1))
    path.rename(path.with_name(name))
    append(path, line(2))
    assert drain(tail) == line(1) + line(2)


@pytest.mark.parametrize(
    "name",
    [
        "events.jsonl.1.gz",
        "events.jsonl.lock",
        "events.jsonl.tmp",
        "events.jsonl2",
        "other.1",
        "x-events.jsonl.1",
    ],
)
def test_other_files_are_left_alone(path: Path, name: str) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    rename_rotation(path)
    append(path.with_name(name), line(1))
    append(path, line(2))
    assert drain(tail) == line(2)


def test_siblings_from_before_the_first_start_are_not_read(path: Path) -> None:
    append(path.with_name("events.jsonl.1"), line(0))
    append(path, line(1))
    tail = Tail(path)
    assert drain(tail) == line(1)


def test_siblings_from_before_are_not_read_when_the_file_was_absent_at_start(path: Path) -> None:
    append(path.with_name("events.jsonl.1"), line(0))
    tail = Tail(path)
    tail.read(MUCH)
    assert not tail.caught_up
    append(path, line(1))
    rename_rotation(path)
    append(path, line(2))
    assert drain(tail) == line(1) + line(2)


def test_a_copy_left_beside_is_not_read_when_the_file_is_renamed(path: Path) -> None:
    tail = Tail(path)
    append(path, lines(range(3)))
    tail.read(MUCH)
    shutil.copyfile(path, path.with_name("events.jsonl.2026-copy"))
    rename_rotation(path)
    append(path, line(3))
    assert drain(tail) == line(3)


def test_a_sibling_that_cannot_be_opened_is_passed_over_and_said() -> None:
    with open_folder() as folder:
        path = folder / "events.jsonl"
        tail = Tail(path)
        append(path, line(0))
        with without_privileges():
            tail.read(MUCH)
        rename_rotation(path)
        append(path, line(1))
        path.chmod(0)
        rename_rotation(path)
        append(path, line(2))
        with without_privileges():
            assert tail.read(MUCH) == line(2)
        assert (tail.up, tail.error) == (False, f"{path}: Permission denied")
        tail.read(MUCH)
        assert tail.up


def test_a_sibling_that_cannot_be_read_is_passed_over_and_said(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    rename_rotation(path)
    path.symlink_to("/proc/self/mem")
    rename_rotation(path)
    append(path, line(1))
    aged(path.with_name("events.jsonl.2"), 0)
    os.utime(path, (2**33, 2**33))
    assert tail.read(MUCH) == line(1)
    assert (tail.up, tail.error) == (False, f"{path}: Input/output error")
    tail.read(MUCH)
    assert tail.up


def test_siblings_written_after_the_file_itself_are_not_in_between(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    rename_rotation(path)
    append(path, line(1))
    other = path.with_name("events.jsonl.5")
    append(other, line(2))
    aged(path.with_name("events.jsonl.1"), 1)
    aged(path, 2)
    aged(other, 3)
    assert drain(tail) == line(1)


def test_a_copy_made_before_a_file_moved_elsewhere_had_its_last_line(path: Path) -> None:
    tail = Tail(path)
    append(path, line(0))
    tail.read(MUCH)
    copy, away = path.with_name("events.jsonl.1-copy"), path.with_name("elsewhere")
    shutil.copyfile(path, copy)
    path.rename(away)
    append(away, line(1))
    assert tail.read(MUCH) == line(1)
    append(path, line(2))
    for seconds, file in enumerate((copy, away, path)):
        aged(file, seconds)
    assert drain(tail) == line(2)


def test_blank_lines_at_the_same_place_do_not_make_a_copy(path: Path) -> None:
    tail = Tail(path)
    append(path, b"\n")
    tail.read(MUCH)
    path.write_bytes(line(0))
    rename_rotation(path)
    append(path, b"\n" + line(1))
    assert drain(tail).strip(b"\n") == (line(0) + b"\n" + line(1)).strip(b"\n")


def test_a_file_that_is_not_what_was_seen_is_not_opened(path: Path) -> None:
    append(path, line(0))
    seen = file_at(path)
    fd = open_file(seen)
    os.close(fd)
    path.rename(path.with_name("events.jsonl.1"))
    with pytest.raises(MovedError):
        open_file(seen)
    append(path, line(1))
    with pytest.raises(MovedError):
        open_file(seen)


def test_a_file_with_the_inode_of_one_of_which_no_event_was_read_hides_none_before_it(path: Path) -> None:
    """What was consumed, a blank line, would be in either; what lies between was never read."""
    append(path, b"\n" + line(1))
    now = path.stat()
    append(path.with_name("events.jsonl.1"), line(0))
    os.utime(path.with_name("events.jsonl.1"), ns=(now.st_mtime_ns, now.st_mtime_ns))
    tail = Tail(path)
    tail.restore(
        {"dev": now.st_dev, "ino": now.st_ino, "offset": 1, "overlap": b"\n", "mtime_ns": now.st_mtime_ns - 1}
    )
    assert drain(tail).split() == (line(0) + line(1)).split()
