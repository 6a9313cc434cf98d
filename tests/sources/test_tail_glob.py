"""Many files under one pattern, as one source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.event_files import (
    MUCH,
    append,
    drain,
    line,
    lines,
    open_folder,
    rename_rotation,
    without_privileges,
)
from omniwatch.sources import SourceError
from omniwatch.sources.spec import open_source
from omniwatch.sources.tail import Tail
from omniwatch.sources.tails import GLOB_INTERVAL_S, Tails, to_follow


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def look_again(self) -> None:
        self.now += GLOB_INTERVAL_S


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tails(tmp_path: Path, clock: Clock) -> Tails:
    return Tails(str(tmp_path / "*.jsonl*"), clock)


def test_all_files_that_match_are_read_and_new_ones_are_found(
    tmp_path: Path, tails: Tails, clock: Clock
) -> None:
    assert tails.read(MUCH) == b""
    assert (tails.up, tails.error) == (False, f"{tails.pattern}: no file matches")
    append(tmp_path / "a.jsonl", line(0, "a"))
    append(tmp_path / "b.jsonl", line(0, "b"))
    append(tmp_path / "other", line(0, "c"))
    assert tails.read(MUCH) == b""
    clock.look_again()
    assert tails.read(MUCH) == line(0, "a") + line(0, "b")
    assert (tails.up, tails.error, tails.caught_up) == (True, None, True)
    append(tmp_path / "a.jsonl", line(1, "a"))
    assert drain(tails) == line(1, "a")
    assert tails.name == f"tail:{tmp_path}/*.jsonl*"


def test_a_file_that_cannot_be_read_makes_the_source_say_so(tmp_path: Path, tails: Tails) -> None:
    append(tmp_path / "a.jsonl", line(0))
    (tmp_path / "b.jsonl").symlink_to("/proc/self/mem")
    assert tails.read(MUCH) == line(0)
    assert (tails.up, tails.error) == (False, f"{tmp_path}/b.jsonl: Input/output error")
    assert not tails.caught_up


def test_rotated_siblings_are_read_by_the_file_they_belong_to(
    tmp_path: Path, tails: Tails, clock: Clock
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, line(0))
    drain(tails)
    for number in (1, 2):
        rename_rotation(path)
        clock.look_again()
        append(path, line(number))
    assert drain(tails) == line(1) + line(2)
    assert (tails.rotations, tails.truncations) == (2, 0)
    clock.look_again()
    assert drain(tails) == b""


def test_in_the_moment_of_a_rotation_the_sibling_is_no_file_of_its_own(
    tmp_path: Path, tails: Tails, clock: Clock
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, line(0))
    drain(tails)
    rename_rotation(path)
    clock.look_again()
    assert tails.read(MUCH) == b""
    append(path, line(1))
    clock.look_again()
    assert drain(tails) == line(1)


def test_a_sibling_taken_for_a_file_amid_a_rotation_is_let_go(
    tmp_path: Path, tails: Tails, clock: Clock
) -> None:
    path = tmp_path / "a.jsonl"
    append(tmp_path / "a.jsonl.1", line(0))
    assert tails.read(MUCH) == line(0)
    append(path, line(1))
    clock.look_again()
    assert tails.read(MUCH) == line(1)
    clock.look_again()
    tails.read(MUCH)
    assert set(tails.state()) == {str(path)}


def test_a_file_that_is_gone_is_read_to_its_end_and_let_go(
    tmp_path: Path, tails: Tails, clock: Clock
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, line(0) + line(1)[:-1])
    append(tmp_path / "b.jsonl", line(2) + line(3)[:-5])
    assert drain(tails) == line(0) + line(2)
    path.unlink()
    (tmp_path / "b.jsonl").unlink()
    clock.look_again()
    assert tails.read(MUCH) == b""
    assert set(tails.state()) == {str(path), str(tmp_path / "b.jsonl")}
    clock.look_again()
    assert tails.read(MUCH) == line(1)
    assert tails.state() == {}
    assert tails.invalid == {"nul": 0, "oversize": 0, "truncated": 1}
    append(path, line(5))
    clock.look_again()
    assert drain(tails) == line(5)


def test_a_file_in_flow_does_not_starve_the_others(tmp_path: Path, tails: Tails) -> None:
    for name in "abc":
        append(tmp_path / f"{name}.jsonl", lines(range(10_000), name))
    writers = [set(re.findall(rb'"w":"(\w)"', tails.read(1))) for _ in range(4)]
    assert writers == [{b"a"}, {b"b"}, {b"c"}, {b"a"}]
    assert not tails.caught_up
    assert tails.bytes_behind > 0


def test_a_restart_goes_on_in_each_file(tmp_path: Path, tails: Tails) -> None:
    for name in "ab":
        append(tmp_path / f"{name}.jsonl", lines(range(3), name))
    drain(tails)
    for name in "ab":
        append(tmp_path / f"{name}.jsonl", line(3, name))
    rename_rotation(tmp_path / "a.jsonl")
    append(tmp_path / "a.jsonl", line(4, "a"))
    again = Tails(tails.pattern)
    again.restore(tails.state())
    tails.close()
    assert sorted(drain(again).splitlines()) == sorted(
        (line(3, "a") + line(4, "a") + line(3, "b")).splitlines()
    )


def test_what_was_gone_before_a_restart_is_let_go(tmp_path: Path, tails: Tails, clock: Clock) -> None:
    for name in "ab":
        append(tmp_path / f"{name}.jsonl", line(0, name))
    drain(tails)
    (tmp_path / "b.jsonl").unlink()
    again = Tails(tails.pattern, clock)
    again.restore(tails.state())
    assert again.read(MUCH) == b""
    assert not again.up
    clock.look_again()
    assert again.read(MUCH) == b""
    assert again.up
    assert set(again.state()) == {str(tmp_path / "a.jsonl")}


def test_a_state_that_is_none_is_refused(tails: Tails) -> None:
    with pytest.raises(SourceError, match="not a position"):
        tails.restore({"/x.jsonl": {"offset": -1}})
    assert tails.state() == {}


def _touch(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.jsonl.1", _touch),
        ("a.jsonl-20260101", _touch),
        ("a.jsonl.1.gz", _touch),
        ("b.jsonl.zst", _touch),
        ("folder.jsonl", lambda path: path.mkdir()),
        ("link.jsonl", lambda path: path.symlink_to("a.jsonl")),
    ],
)
def test_what_matches_but_is_not_followed(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / name
    path.touch()
    make(other)
    assert to_follow({path, other}, set()) == {path}
    assert to_follow({other}, {path}) == set()


def test_names_that_only_look_alike_are_followed(tmp_path: Path) -> None:
    paths = {tmp_path / name for name in ("a.jsonl", "a.jsonl2", "a-1.jsonl", "b.jsonl.1", "1.jsonl")}
    for path in paths:
        path.touch()
    assert to_follow(paths, set()) == paths


def test_a_pattern_below_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        append(tmp_path / name / "e.jsonl", line(0, name))
    assert drain(Tails(f"{tmp_path}/*/e.jsonl")) == line(0, "one") + line(0, "two")
    assert drain(Tails(f"{tmp_path}/**/e.jsonl")) == line(0, "one") + line(0, "two")


def test_a_pattern_that_cannot_be_is_refused() -> None:
    with pytest.raises(
        SourceError, match=r'^tail:/run/\*\*x/\*\.jsonl: "\*\*" stands for whole folders, .+$'
    ):
        Tails("/run/**x/*.jsonl")


def test_a_relative_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    append(Path("e.jsonl"), line(0))
    assert drain(Tails("*.jsonl")) == line(0)
    assert drain(Tail(Path("e.jsonl"))) == line(0)


def test_the_specification_decides_between_a_path_and_a_pattern(tmp_path: Path) -> None:
    assert isinstance(open_source(f"tail:{tmp_path}/e.jsonl"), Tail)
    assert isinstance(open_source(f"tail:{tmp_path}/*.jsonl"), Tails)


def test_a_folder_that_may_not_be_listed_is_no_absence(clock: Clock) -> None:
    with open_folder() as folder:
        append(folder / "events.jsonl", line(0))
        tails = Tails(f"{folder}/*.jsonl", clock)
        folder.chmod(0)
        with without_privileges():
            assert tails.read(MUCH) == b""
            assert (tails.up, tails.absent, tails.error) == (False, False, f"{folder}: Permission denied")
            clock.look_again()
        folder.chmod(0o755)
        with without_privileges():
            assert tails.read(MUCH) == line(0)
            assert tails.up


def test_a_folder_that_is_not_there_yet_is(tmp_path: Path, clock: Clock) -> None:
    tails = Tails(str(tmp_path / "later" / "*.jsonl"), clock)
    tails.read(MUCH)
    assert (tails.absent, tails.error) == (True, f"{tails.pattern}: no file matches")
