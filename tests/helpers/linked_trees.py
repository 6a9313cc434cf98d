"""File trees with links at every component, made up at random, and what the device that starts from such a tree sees and does."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

import msgspec

from omniwatch.system import rooted

NAMES = ("a", "b", "c")
SECRET = "of the machine, not of the tree"
Ask = Callable[[Path, PurePosixPath], Any]


def _content(root: Path, path: PurePosixPath) -> str:
    return rooted.read(root, path, 4096).decode()


def _state(root: Path, path: PurePosixPath, *, follow: bool) -> str:
    found = rooted.stat_of(root, path, follow=follow)
    return "" if found is None else f"{stat.S_IFMT(found.st_mode):o} {found.st_mode & 0o777:o}"


def _staged(root: Path, path: PurePosixPath) -> None:
    with rooted.replacing_all(root) as stage:
        stage(path, b"staged", mode=0o644)
        stage(path.with_name("link"), b"", link="/a/b", mode=0o644)


READS: dict[str, Ask] = {
    "read": _content,
    "names": rooted.names,
    "stat": lambda root, path: _state(root, path, follow=True),
    "lstat": lambda root, path: _state(root, path, follow=False),
    "link": rooted.link,
}
CHANGES: dict[str, Ask] = {
    "make_folder": lambda root, path: rooted.make_folder(root, path, 0o750),
    "make_folders": rooted.make_folders,
    "replace": lambda root, path: rooted.replace(root, path, b"new", mode=0o640),
    "rename": lambda root, path: rooted.rename(root, path, "renamed"),
    "remove": rooted.remove,
    "remove_empty": rooted.remove_empty,
    "stage": _staged,
}


@contextmanager
def by_hand() -> Iterator[None]:
    """Have no kernel that knows of roots: the way goes component by component."""
    with mock.patch.object(rooted, "_openat2", return_value=None):
        yield


def outside(folder: Path) -> Path:
    """Make a folder that no tree has, with names that the trees have, too. Returns it."""
    for name in NAMES:
        (folder / name / "a").mkdir(parents=True)
        (folder / name / "b").write_text(SECRET)
    return folder


def plant(root: Path, elsewhere: Path, dice: random.Random) -> None:
    """Make a tree of folders, files, FIFOs and links: absolute, relative, upwards, in circles, and to what is elsewhere."""
    root.mkdir()
    for place in dice.sample(_paths(), 20):
        path = root / str(place)[1:]
        # What is a link already leads somewhere: nothing is made through it.
        if any(parent.is_symlink() for parent in path.parents) or os.path.lexists(path):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        match dice.randrange(8):
            case 0:
                path.mkdir()
            case 1:
                path.write_text(f"of {place}")
            case 2:
                os.mkfifo(path)
            case _:
                path.symlink_to(_target(elsewhere, dice))


def _target(elsewhere: Path, dice: random.Random) -> str:
    inner = str(dice.choice(_paths()))
    up = "../" * dice.randrange(5)
    return dice.choice(
        (
            inner,
            inner[1:],
            up + inner[1:],
            up or ".",
            f"{inner}/",
            f"{inner}/.",
            "/" + up + inner[1:],
            str(elsewhere),
            f"{'../' * 30}{str(elsewhere)[1:]}{inner}",
            f"{elsewhere}{inner}",
        )
    )


def _paths() -> list[PurePosixPath]:
    """Every path of one to three names."""
    found = [PurePosixPath("/", name) for name in NAMES]
    for path in found:
        if len(path.parts) < 4:
            found += [path / name for name in NAMES]
    return found


def paths(dice: random.Random, count: int) -> list[PurePosixPath]:
    """Return some paths to ask for, a few of them by way of `..`."""
    some = dice.choices(_paths(), k=count)
    return [
        PurePosixPath(f"{path}/../{dice.choice(NAMES)}") if dice.random() < 0.2 else path for path in some
    ]


def done(root: Path, asked: list[tuple[str, PurePosixPath]]) -> list[Any]:
    """What each question and each change gives: its answer, or the number of its error."""
    return [_tried((READS | CHANGES)[name], root, path) for name, path in asked]


def _tried(ask: Ask, root: Path, path: PurePosixPath) -> Any:
    try:
        return ask(root, path)
    except OSError as error:
        return f"error {error.errno}"


def done_there(root: Path, asked: list[tuple[str, PurePosixPath]]) -> list[Any]:
    """The same of the device itself: a child whose root this tree is."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chroot(root)
            os.chdir("/")
            with os.fdopen(writing, "wb") as told:
                told.write(msgspec.json.encode(done(Path("/"), asked)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        answer = told.read()
    os.waitpid(child, 0)
    found: list[Any] = msgspec.json.decode(answer)
    return found


def everything(folder: Path) -> dict[str, str]:
    """Every path below a folder, with its kind, its mode and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        held = str(path.readlink()) if stat.S_ISLNK(mode) else path.read_text() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = f"{mode:o} {held}"
    return found


def compare(folder: Path, seed: int) -> str:
    """Make up a tree twice; ask and change the one from outside, the other from within. Returns what differs, "" for nothing."""
    trees = [folder / "from-outside", folder / "from-within"]
    elsewhere = outside(folder / "elsewhere")
    untouched = everything(elsewhere)
    for tree in trees:
        plant(tree, elsewhere, random.Random(seed))
    dice = random.Random(seed)
    asked = [(dice.choice([*READS, *CHANGES]), path) for path in paths(dice, 40)]
    here, there = done(trees[0], asked), done_there(trees[1], asked)
    for question, ours, theirs in zip(asked, here, there, strict=True):
        if ours != theirs:
            return f"{question[0]} {question[1]}: {ours!r}, and on the device {theirs!r}"
    if everything(trees[0]) != everything(trees[1]):
        return "the trees differ"
    if everything(elsewhere) != untouched:
        return "something elsewhere was changed"
    return "a secret was read" if SECRET in str(here) else ""
