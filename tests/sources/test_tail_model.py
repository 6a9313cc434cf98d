"""Any interleaving of what writers, rotations and restarts do: no event twice, none lost without being counted."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.event_files import Reader, line
from omniwatch.events import Video, decode
from omniwatch.sources.tail import Tail

Event = tuple[str | None, int]
KEEP = 3


def events_in(content: bytes) -> set[Event]:
    """The events that a file holds, its last line's end not asked for."""
    found = map(decode, re.split(rb"[\0\n]", content))
    return {(event.w, event.n) for event in found if isinstance(event, Video)}


class Files(RuleBasedStateMachine):
    """A writer with its file, whoever rotates it, and a sidecar that reads it and may be killed at any moment.

    Times of last writes come from a clock that goes on by `tick` nanoseconds a write: with 0, all are the same, as
    on a coarse file system.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tail-model-"))
        self.path = self.folder / "e.jsonl"
        self.fd = -1
        self.rest = b""
        self.writer, self.number = 0, 0
        self.clock, self.tick = 10**18, 0
        self.truncates = False
        self.destroyed: set[Event] = set()
        self.excused: set[Event] = set()
        self.at_risk: set[Event] = set()
        self.reader = Reader(Tail(self.path))
        self.reader.read()
        self.saved = self.reader.save()

    @initialize(tick=st.sampled_from([0, 1]), appends=st.booleans(), truncates=st.booleans())
    def begin(self, tick: int, appends: bool, truncates: bool) -> None:
        self.tick, self.truncates = tick, truncates
        self.flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if appends else 0)

    # The writer.

    @rule(count=st.integers(1, 4), pad=st.sampled_from([0, 0, 300]))
    def write(self, count: int, pad: int) -> None:
        self.complete()
        for _ in range(count):
            self._put(self._next_line(pad))

    @rule(part=st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.0]))
    def write_part(self, part: float) -> None:
        self.complete()
        whole = self._next_line(0)
        cut = round(part * (len(whole) - 1))
        self._put(whole[:cut])
        self.rest = whole[cut:]

    @rule()
    def complete(self) -> None:
        rest, self.rest = self.rest, b""
        if rest:
            self._put(rest)

    @rule()
    def restart_writer(self) -> None:
        """The new one begins with a line end: it cannot know whether the old one came to write its last."""
        self._open()
        self._put(b"\n")
        self.writer, self.number = self.writer + 1, 0

    @rule()
    def reopen(self) -> None:
        """What a writer does when it is told that its file was rotated."""
        self._open()
        self._put(b"\n")

    def _next_line(self, pad: int) -> bytes:
        self.number += 1
        return line(self.number - 1, f"w{self.writer}", pad)

    def _put(self, data: bytes) -> None:
        if self.fd < 0:
            self._open()
        os.write(self.fd, data)
        self._touch(self.fd)

    def _open(self) -> None:
        self._close()
        self.fd = os.open(self.path, self.flags)
        os.lseek(self.fd, 0, os.SEEK_END)

    def _close(self) -> None:
        """Whatever the line was that is not complete, it will not be."""
        self.rest = b""
        if self.fd >= 0:
            if os.fstat(self.fd).st_nlink == 0:
                self._destroy(os.pread(self.fd, 1 << 20, 0))
            os.close(self.fd)
        self.fd = -1

    def _touch(self, file: int | Path) -> None:
        self.clock += self.tick
        os.utime(file, ns=(self.clock, self.clock))

    # Who rotates.

    @precondition(lambda self: self.path.exists())
    @rule(count=st.integers(0, 3), new_file=st.sampled_from(["at once", "by the next write", "by another"]))
    def rotate(self, count: int, new_file: str) -> None:
        """By the writer, which opens a new file at once or when it needs one; or by another, unknown to it."""
        if count:
            self.write(count, 0)
        if new_file != "by another":
            self._close()
        self._shift()
        self.path.rename(self.path.with_name("e.jsonl.1"))
        if new_file == "at once":
            self._open()
        elif new_file == "by another":
            self.path.touch()
        if self.path.exists():
            self._touch(self.path)

    @precondition(lambda self: self.truncates and self._writes_to_path())
    @rule()
    def copytruncate(self) -> None:
        self._shift()
        copy = self.path.with_name("e.jsonl.1")
        shutil.copyfile(self.path, copy)
        self._touch(copy)
        self._truncate()

    @precondition(lambda self: self.truncates and self._writes_to_path())
    @rule()
    def truncate(self) -> None:
        self._truncate()

    @precondition(lambda self: self.truncates and self._writes_to_path())
    @rule(count=st.integers(1, 9))
    def truncate_and_grow(self, count: int) -> None:
        self._truncate()
        self.write(count, 0)

    def _writes_to_path(self) -> bool:
        return self.path.exists() and (self.fd < 0 or os.fstat(self.fd).st_ino == self.path.stat().st_ino)

    def _truncate(self) -> None:
        self._destroy(self.path.read_bytes())
        os.truncate(self.path, 0)
        self._touch(self.path)

    def _shift(self) -> None:
        for number in range(KEEP, 0, -1):
            old = self.path.with_name(f"e.jsonl.{number}")
            if not old.exists():
                continue
            if number < KEEP:
                old.rename(self.path.with_name(f"e.jsonl.{number + 1}"))
            else:
                self._destroy(old.read_bytes())
                old.unlink()

    def _destroy(self, content: bytes) -> None:
        """What was not counted may now be lost; what was, may be once a kill undoes the count."""
        events = events_in(content)
        self.destroyed |= events
        self.excused |= events - self.reader.counts.keys()
        self.at_risk |= events

    # The sidecar.

    @rule(budget=st.sampled_from([1, 100, 1000, 1 << 20]))
    def read(self, budget: int) -> None:
        self.reader.read(budget)

    @rule()
    def save(self) -> None:
        self.saved = self.reader.save()

    @rule(saves=st.booleans())
    def restart(self, saves: bool) -> None:
        """Stop in order, or killed: what was read since the last checkpoint is to be read again."""
        if saves:
            self.save()
        self.reader.source.close()
        self.reader = self.saved.resume(Tail(self.path))
        self.excused |= self.at_risk - self.reader.counts.keys()

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        assert not {event for event, count in self.reader.counts.items() if count > 1}

    @invariant()
    def gaps_are_counted_as_lost(self) -> None:
        gaps = 0
        for writer in {writer for writer, _ in self.reader.counts}:
            numbers = [number for name, number in self.reader.counts if name == writer]
            gaps += max(numbers) + 1 - len(numbers)
        assert self.reader.sequence.lost == gaps

    @invariant()
    def renamed_files_are_not_read_again(self) -> None:
        assert self.truncates or not self.tick or not self.reader.sequence.repeated

    def teardown(self) -> None:
        try:
            self.reopen()
            self.write(1, 0)
            self.reader.drain()
            self.nothing_is_counted_twice()
            self.gaps_are_counted_as_lost()
            there = set().union(*(events_in(file.read_bytes()) for file in self.folder.iterdir()))
            assert there - self.reader.counts.keys() <= self.excused
            assert self.reader.counts.keys() <= there | self.destroyed
        finally:
            self.reader.source.close()
            self._close()
            shutil.rmtree(self.folder)


TestFiles = pytest.mark.slow(pytest.mark.timeout(900)(Files.TestCase))
TestFiles.settings = settings(max_examples=400, stateful_step_count=40, derandomize=True)
