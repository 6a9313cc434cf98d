"""What is below a root, reached as the device itself would: by the kernel's own way, and component by component."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath

import pytest

from helpers.limits import no_file_over
from helpers.linked_trees import CHANGES, READS, SECRET, by_hand, compare, done, everything, outside
from omniwatch.system import rooted

TREES = 60
"""Trees made up at random in each way; `make adversary` has more."""
SWAPS = 50
"""Reads of each kind, of the folder and of the link in its place, while somebody swaps the two."""


@pytest.fixture(params=["kernel", "by hand"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways; the kernel's is there since Linux 5.6."""
    if request.param == "kernel":
        assert rooted._openat2() is not None  # noqa: SLF001
    with by_hand() if request.param == "by hand" else nullcontext():
        yield


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a root")
def test_all_is_seen_and_done_as_the_device_itself_would(way: None, tmp_path: Path) -> None:
    first = random.randrange(1 << 30)
    for seed in range(first, first + TREES):
        (tmp_path / str(seed)).mkdir()
        assert compare(tmp_path / str(seed), seed) == "", f"seed {seed}"


@pytest.mark.parametrize("target", ["{}", "../../../../../../../../{}", "/../..{}", "a", "/loop"])
def test_a_link_leads_nowhere_else_in_any_place(way: None, tmp_path: Path, target: str) -> None:
    elsewhere = outside(tmp_path / "elsewhere")
    before = everything(elsewhere)
    root = tmp_path / "root"
    root.mkdir()
    (root / "loop").symlink_to("loop")
    (root / "a").symlink_to(target.format(elsewhere))
    names = [PurePosixPath(path) for path in ("/a", "/a/a", "/a/b", "/a/b/a", "/a/b/../../c")]
    answers = done(root, [(what, path) for path in names for what in (*READS, *CHANGES)])
    assert SECRET not in str(answers)
    assert everything(elsewhere) == before


def _swap(root: Path, ends: threading.Event) -> None:
    """Have /a be a folder and a link out of the root by turns."""
    while not ends.is_set():
        (root / "a").rename(root / "folder")
        (root / "link").rename(root / "a")
        (root / "a").rename(root / "link")
        (root / "folder").rename(root / "a")


@pytest.mark.slow
def test_what_is_swapped_meanwhile_leads_nowhere_else(way: None, tmp_path: Path) -> None:
    elsewhere = outside(tmp_path / "elsewhere")
    before = everything(elsewhere)
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/b").write_text("ours")
    (root / "link").symlink_to(elsewhere)
    ends = threading.Event()
    swapping = threading.Thread(target=_swap, args=(root, ends))
    swapping.start()
    path, ours, missed = PurePosixPath("/a/b"), 0, 0
    deadline = time.monotonic() + 60
    try:
        while min(ours, missed) < SWAPS:
            assert time.monotonic() < deadline, f"{ours} reads, {missed} past a swap"
            try:
                assert rooted.read(root, path / "b") == b"ours"
                ours += 1
            except OSError:
                missed += 1
            for name in CHANGES.keys() - {"make_folders"}:  # which would make /a while it has another name
                with suppress(OSError):
                    CHANGES[name](root, path / "c")
    finally:
        ends.set()
        swapping.join()
    assert everything(elsewhere) == before


def test_links_in_a_row_are_followed_as_far_as_the_kernel_does(way: None, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("at the end")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(f"/{number - 1}")
    assert rooted.read(tmp_path, PurePosixPath("/40")) == b"at the end"
    with pytest.raises(OSError, match="symbolic links") as raised:
        rooted.read(tmp_path, PurePosixPath("/41"))
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(tmp_path / "41"))


def test_what_is_no_file_is_not_waited_for(way: None, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    for name in ("fifo", "zero", "socket"):
        with pytest.raises(OSError, match="not a regular file"):
            rooted.read(tmp_path, PurePosixPath("/", name))
    with pytest.raises(IsADirectoryError):
        rooted.read(tmp_path, PurePosixPath("/dev"))


def test_a_file_is_read_to_its_bound(way: None, tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 101)
    path = PurePosixPath("/long")
    assert rooted.read(tmp_path, path, 101) == b"x" * 101
    assert rooted.read(tmp_path, path, 100, cut=True) == b"x" * 100
    with pytest.raises(OSError, match="longer than 100 bytes"):
        rooted.read(tmp_path, path, 100)


def test_a_path_with_a_nul_is_not_there(way: None, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("cut short")
    assert rooted.stat_of(tmp_path, PurePosixPath("/a\0b")) is None


def test_several_take_their_places_together_or_none_does(way: None, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"old")
    first.chmod(0o640)
    with rooted.replacing_all(tmp_path) as stage:
        stage(PurePosixPath("/first"), b"new")
        stage(PurePosixPath("/second"), b"", link="first")
        assert (first.read_bytes(), second.exists()) == (b"old", False)
    assert (first.read_bytes(), second.readlink()) == (b"new", Path("first"))
    assert first.stat().st_mode & 0o777 == 0o640

    def write_both() -> None:
        with rooted.replacing_all(tmp_path) as stage, no_file_over(100):
            stage(PurePosixPath("/first"), b"newer")
            stage(PurePosixPath("/second"), b"x" * 200)

    with pytest.raises(OSError, match=r"File too large: '.*/second'$"):
        write_both()
    assert (first.read_bytes(), second.readlink()) == (b"new", Path("first"))
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_folders_in_folders_are_removed_to_a_depth(way: None, tmp_path: Path) -> None:
    deep = tmp_path / "top"
    for _ in range(rooted.MAX_DEPTH):
        deep /= "d"
    deep.mkdir(parents=True)
    with pytest.raises(OSError, match="folders in folders without an end") as raised:
        rooted.remove(tmp_path, PurePosixPath("/top"))
    assert raised.value.filename == str(tmp_path / "top")
    deep.rmdir()
    rooted.remove(tmp_path, PurePosixPath("/top"))
    assert list(tmp_path.iterdir()) == []
