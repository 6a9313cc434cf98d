"""A process killed at its Nth write: a forked child whose audit hook counts what it changes on the disk."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHANGES = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.chmod",
    "os.truncate",
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def killed_at(number: int, below: Path, run: Callable[[], int]) -> int | None:
    """Run it in a child that is killed before its change `number` below a folder, counted from 1. Returns None when it was,
    and how many changes it made when it ended before.

    A file's making counts twice: the child is killed before the file is there, and once it is there and empty. Raises
    AssertionError when what ran to its end failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        killer = _Killer(number, str(below))
        failed = True
        try:
            failed = bool(run())
        finally:
            os.write(writing, b"%d" % (number - killer.left))
            os._exit(failed)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        count = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, "what was not killed failed"
    return int(count)


class _Killer:
    """Counts changes and ends this process at one of them. An audit hook stays for good: only a child may have one."""

    def __init__(self, number: int, below: str) -> None:
        self.left, self._below = number, below
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES:
            name = arguments[1] if event == "os.symlink" else arguments[0]
            # By descriptor, or relative to an open folder (shutil.rmtree): nothing but the tree is changed so.
            if isinstance(name, int) or not Path(os.fsdecode(name)).is_absolute() or self._is_below(name):
                self._count()
        elif event == "open" and arguments[2] & _WRITES:
            name = arguments[0]
            if isinstance(name, str | bytes | os.PathLike) and not Path(os.fsdecode(name)).is_absolute():
                # In an open folder: that it is there and empty is seen as its mode is set, which counts as well.
                self._count()
            elif self._is_below(name):
                self._count()
                if self.left == 1:
                    with suppress(FileExistsError):
                        self._below = os.devnull
                        os.close(os.open(name, arguments[2] | os.O_CREAT, 0o600))
                self._count()

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_below(self, name: object) -> bool:
        return isinstance(name, str | bytes | os.PathLike) and os.fsdecode(name).startswith(self._below)
