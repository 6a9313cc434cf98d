"""A file that is replaced: whole, or as it was, and with no other beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.limits import no_file_over
from omniwatch.system.atomic_write import replace, replacing


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("durable", [False, True])
def test_it_is_the_new_one_only_at_the_end(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with replacing(target, durable=durable) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_whoever_fails_in_between_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(target) as file:
        file.write(b"%d" % (1 // 0))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("mask", "mode", "expected"), [(0o077, 0o644, 0o644), (0, 0o600, 0o600), (0o027, None, 0o640)]
)
def test_its_mode(tmp_path: Path, mask: int, mode: int | None, expected: int) -> None:
    target = tmp_path / "file"
    with umask(mask):
        replace(target, b"new", mode=mode)
    assert target.stat().st_mode & 0o777 == expected


def test_nobody_else_reads_a_secret_while_it_is_written(tmp_path: Path) -> None:
    with umask(0), replacing(tmp_path / "file", mode=0o600):
        (beside,) = tmp_path.iterdir()
        assert beside.stat().st_mode & 0o777 == 0o600


def test_what_lies_where_it_is_written_is_neither_followed_nor_kept(tmp_path: Path) -> None:
    target, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{os.getpid()}").symlink_to(victim)
    replace(target, b"new", mode=0o600)
    assert (target.read_bytes(), target.is_symlink(), victim.read_bytes()) == (b"new", False, b"precious")
    assert sorted(tmp_path.iterdir()) == [target, victim]


def test_the_error_names_the_file_that_was_wanted(tmp_path: Path) -> None:
    for target in (tmp_path / "absent" / "file", tmp_path):
        with pytest.raises(OSError, match=rf"^\[Errno \d+\] [\w ]+: '{target}'$"):
            replace(target, b"new")
    target = tmp_path / "file"
    with no_file_over(100), pytest.raises(OSError, match=r"File too large: '.*/file'$"):
        replace(target, b"x" * 200)
    assert list(tmp_path.iterdir()) == []
    replace(target, b"old")
    with pytest.raises(FileNotFoundError, match=r": '/another'$"), replacing(target):
        raise FileNotFoundError(2, "No such file or directory", "/another")
    assert target.read_bytes() == b"old"
