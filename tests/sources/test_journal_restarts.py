"""Each entry once: over restarts of the reader, of journalctl, of the machine."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.journal_files import BOOT_B, Clock, Log, Open, event, read_all, read_some, read_until, readers
from helpers.waiting import wait_until
from omniwatch.sources.journal import FIRST_PAUSE_S, LONGEST_PAUSE_S

pytestmark = pytest.mark.programs


@pytest.fixture
def journal(tmp_path: Path) -> Log:
    return Log(tmp_path / "journal")


@pytest.fixture
def reader(journal: Log) -> Iterator[Open]:
    with readers(journal) as make:
        yield make


@pytest.mark.parametrize("budget", [1, 150, 1000])
def test_restarts_deliver_each_entry_once(journal: Log, reader: Open, budget: int) -> None:
    wanted = [event(number) for number in range(30)]
    journal.append(b"not ours", *wanted[:10], b"{a}\n{b}", *wanted[10:20])
    got: list[bytes] = []
    state: dict[str, Any] = {}
    for generation in range(14):
        source = reader(state)
        got += read_some(source, budget)
        state = source.state()
        source.close()
        if generation == 6:
            journal.append(*wanted[20:])
    got += read_all(reader(state))
    assert got == [*wanted[:10], b"{a}", b"{b}", *wanted[10:]]


def test_a_restart_with_nothing_new_delivers_nothing(journal: Log, reader: Open) -> None:
    journal.append(event(0), b"foreign")
    first = reader()
    read_all(first)
    again = reader(first.state())
    assert read_all(again) == []
    assert (again.up, again.foreign) == (True, 0)


def test_the_cursor_follows_what_was_returned_not_what_was_fetched(journal: Log, reader: Open) -> None:
    journal.append(*map(event, range(10)))
    source = reader()
    first = wait_until(lambda: source.read(1)).splitlines()
    assert first == [event(0)]
    assert read_all(reader(source.state())) == [event(number) for number in range(1, 10)]


def test_rotation_while_following_loses_nothing(journal: Log, reader: Open) -> None:
    journal.append(event(0))
    source = reader()
    read_all(source)
    journal.rotate()
    journal.append(event(1))
    assert read_until(source, 1) == [event(1)]


def test_after_a_gap_reading_goes_on_with_the_next_entry_there_is(journal: Log, reader: Open) -> None:
    journal.append(event(0), event(1))
    source = reader()
    wait_until(lambda: source.read(1))
    source.close()
    vacuumed = journal.rotate()
    journal.append(event(2), event(3))
    vacuumed.unlink()
    assert read_all(reader(source.state())) == [event(2), event(3)]


def test_entries_of_the_boot_before_are_not_forgotten(journal: Log, reader: Open) -> None:
    journal.append(event(0), event(1))
    source = reader()
    wait_until(lambda: source.read(1))
    source.close()
    journal.append(event(2), boot=BOOT_B)
    assert read_all(reader(source.state())) == [event(1), event(2)]


def test_without_a_cursor_the_present_boot_is_read(journal: Log, reader: Open) -> None:
    journal.append(event(0))
    journal.append(event(1), boot=BOOT_B)
    assert read_all(reader()) == [event(1)]


def test_a_killed_journalctl_is_started_again_and_nothing_counts_twice(journal: Log, reader: Open) -> None:
    clock = Clock()
    journal.append(event(0), event(1))
    source = reader(clock=clock)
    read_all(source)
    assert source.pid
    os.kill(source.pid, signal.SIGKILL)
    wait_until(lambda: source.read(1000) == b"" and not source.up)
    assert source.error == "journalctl was killed by signal 9"
    assert not source.caught_up
    journal.append(event(2))
    assert source.read(1000) == b""
    assert source.pid is None
    clock.now += FIRST_PAUSE_S
    assert read_until(source, 1) == [event(2)]
    assert source.up
    assert source.error is None


def test_a_failing_journalctl_is_tried_ever_more_rarely(tmp_path: Path, reader: Open) -> None:
    clock, tries = Clock(), tmp_path / "tries"
    script = f"echo x >> {tries}; echo hint >&2; echo No journal files were opened >&2; exit 1"
    source = reader(argv_prefix=("sh", "-c", script), clock=clock)
    pauses: list[float] = []
    for _ in range(9):
        wait_until(lambda: source.read(1000) == b"" and source.pid is None)
        assert (source.up, source.error) == (False, "No journal files were opened")
        before, began = len(tries.read_text()), clock.now
        while len(tries.read_text()) == before:
            clock.now += FIRST_PAUSE_S
            source.read(1000)
            if source.pid:
                wait_until(lambda: source.read(1000) == b"" and source.pid is None)
        pauses.append(clock.now - began)
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_a_missing_journalctl_is_an_error_that_can_pass(tmp_path: Path, journal: Log, reader: Open) -> None:
    clock, command = Clock(), tmp_path / "journalctl"
    journal.append(event(0))
    source = reader(argv_prefix=(str(command), f"--directory={journal.directory}"), clock=clock)
    assert source.read(1000) == b""
    assert (source.up, source.error) == (False, f"{command}: No such file or directory")
    command.write_text('#!/bin/sh\nexec journalctl "$@"\n')
    command.chmod(0o755)
    clock.now += FIRST_PAUSE_S
    assert read_until(source, 1) == [event(0)]


def test_a_journal_that_is_not_there_yet(journal: Log, reader: Open) -> None:
    clock = Clock()
    source = reader(clock=clock)
    wait_until(lambda: source.read(1000) == b"" and source.pid is None)
    assert not source.up
    assert source.error
    assert "\n" not in source.error
    journal.append(event(0))
    clock.now += FIRST_PAUSE_S
    assert read_until(source, 1) == [event(0)]


def test_a_cursor_of_no_use_is_reported_and_started_over(
    journal: Log, reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    journal.append(event(0))
    source = reader({"cursor": "garbage"}, clock=clock)
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: source.read(1000) == b"" and source.pid is None)
    assert source.error == "Failed to seek to cursor: Invalid argument"
    assert caplog.messages == ["the cursor remembered is of no use, starting over"]
    clock.now += FIRST_PAUSE_S
    assert read_until(source, 1) == [event(0)]


@pytest.mark.parametrize("state", [{}, {"cursor": None}, {"cursor": 7}, {"cursor": ""}])
def test_a_state_without_a_cursor_is_a_first_start(journal: Log, reader: Open, state: dict[str, Any]) -> None:
    journal.append(event(0))
    assert read_all(reader(state)) == [event(0)]


def test_close_ends_journalctl(journal: Log, reader: Open) -> None:
    journal.append(event(0))
    source = reader()
    read_all(source)
    assert source.pid
    process = psutil.Process(source.pid)
    source.close()
    assert not process.is_running()
    assert source.read(1000) == b""
    assert (source.up, source.error, source.pid) == (False, "closed", None)
