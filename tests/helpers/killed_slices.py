"""`slice apply`, killed at random places and run again, against a run that nothing disturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from helpers import slices
from helpers.kills import killed_at
from omniwatch.desk.slice import apply

SMALL = 4096
"""Bytes after which a file is forced to the disk here, so that a kill finds files that are there in part."""
CHANGES = 60
"""More changes of the disk than a run makes."""


class Scene:
    """One checkpoint, and what has to come of it."""

    def __init__(self, folder: Path, layout: str) -> None:
        self._folder = folder
        model = slices.made(folder / "model", layout)
        slices.keep_file(folder / "keep.json", model, slices.draw_kept(layout, 1))
        self._cutting = apply.check(model, folder / "out", folder / "keep.json")
        apply.write(self._cutting, sync_bytes=SMALL)
        self._wanted = slices.tree(folder / "out")
        self._names = sorted(path.name for path in folder.iterdir())
        shutil.rmtree(folder / "out")

    def play(self, draw: random.Random) -> tuple[int, str]:
        """Kill it one to three times, then run it to its end. Returns how often it died, and what is wrong, "" for nothing."""
        kills, ended = 0, False
        for _ in range(draw.randint(1, 3)):
            ended = self._killed(draw)
            kills += not ended
            if (self._folder / "out").exists() and slices.tree(self._folder / "out") != self._wanted:
                return kills, self._again("OUT is there and is not whole")
            if ended:
                break
        if not ended:
            apply.write(self._cutting, sync_bytes=SMALL)
        found, names = slices.tree(self._folder / "out"), sorted(path.name for path in self._folder.iterdir())
        if found != self._wanted:
            return kills, self._again("the bytes differ")
        return kills, self._again("" if names == self._names else f"{names} are there")

    def _killed(self, draw: random.Random) -> bool:
        """Run it, killed at a byte or at a change of the disk; tell whether it ended before."""
        if draw.random() < 0.5:
            told = die_at(draw.randrange(1, self._cutting.size))
            number = 1 << 30
        else:
            told, number = lambda count: None, draw.randint(1, CHANGES)
        run = lambda: apply.write(self._cutting, told=told, sync_bytes=SMALL)  # noqa: E731
        return killed_at(number, self._folder, lambda: bool(run())) is not None

    def _again(self, wrong: str) -> str:
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        shutil.rmtree(self._folder / ".out.slice", ignore_errors=True)
        return wrong


def die_at(byte: int) -> Callable[[int], None]:
    """Kill this process once so many bytes were written."""
    left = byte

    def told(count: int) -> None:
        nonlocal left
        left -= count
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return told
