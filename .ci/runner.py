"""Run suites stage by stage, those of a stage side by side: `runner.py TABLE`.

A line of the table is `STAGE SUITE MINUTES COMMAND`; lines that are empty or begin with # are skipped. Each suite writes
to LOGS/SUITE.log. The terminal shows when a suite begins and ends, a line a minute, and the whole log of a suite that
failed. Other suites of its stage run to their end, and no further stage begins. Of tests that passed at the second try
only, it shows how the first one failed, and the table counts them.

A suite is ended, with every process that it started, when it takes twice its minutes and on Ctrl-C.
Exit code: 0 if all passed, 1 if one did not or all of them took too long, 2 for a bad table, 130 after Ctrl-C.
Standard library only, for it runs before anything is installed. Needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""
RUNNING, PASSED = "running", "passed"
BEAT_S = 60.0
"""Seconds between two lines that say what still runs."""
CLOSING = re.compile(
    r"^(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s(?: \([\d:]+\))?(?: =+)?$", re.MULTILINE
)
"""The last line of a pytest run: `12 passed, 1 skipped in 3.45s`."""

RETRIED = re.compile(
    r"^=+ rerun test summary info =+\n.*?(?=^=+ |^\d+ [a-z]+.* in [\d.]+s|\Z)", re.MULTILINE | re.DOTALL
)
"""What pytest-rerunfailures says of the tests that it tried again."""
AGAIN = re.compile(r"^RERUN \S", re.MULTILINE)


@dataclass
class Suite:
    """One line of the table, and what became of it."""

    stage: str
    name: str
    minutes: float
    command: list[str]
    took_s: float = 0.0
    outcome: str = "not run"
    again: int = 0
    """How many tests were tried a second time."""


class Running(NamedTuple):
    """A suite that runs, with the process that keeps it."""

    suite: Suite
    keeper: subprocess.Popen[bytes]
    began_t: float

    @property
    def deadline_t(self) -> float:
        """When it is ended."""
        return self.began_t + 2 * 60 * self.suite.minutes

    def __str__(self) -> str:
        return f"{self.suite.name} {(time.monotonic() - self.began_t) / 60:.0f} of {self.suite.minutes:g} min"


class TableError(ValueError):
    """The table cannot be read; the message names the line."""


def read_table(text: str) -> list[Suite]:
    """Return the suites of a table. Raises TableError."""
    suites: list[Suite] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            stage, name, minutes, *command = words
            suite = Suite(stage, name, float(minutes), command)
        except ValueError:
            raise TableError(f"line {number}: expected STAGE SUITE MINUTES COMMAND, got {line!r}") from None
        if not command or not suite.minutes > 0:
            raise TableError(f"line {number}: expected minutes above 0 and a command, got {line!r}")
        if name in (one.name for one in suites):
            raise TableError(f"line {number}: a second suite {name!r}")
        suites.append(suite)
    return suites


class Runner:
    """Runs the suites of a table and tells how it goes."""

    def __init__(self, suites: list[Suite], logs: Path, grace_s: float) -> None:
        self._suites = suites
        self._logs = logs
        self._grace_s = grace_s
        self._running: list[Running] = []
        self._ended: queue.Queue[Running] = queue.Queue()

    def run(self) -> bool:
        """Run all stages; return whether every suite passed."""
        for _, stage in groupby(self._suites, lambda suite: suite.stage):
            together = list(stage)
            for suite in together:
                self._start(suite)
            self._await_all()
            if any(suite.outcome != PASSED for suite in together):
                return False
        return True

    def end(self) -> None:
        """End what runs, with all that it started."""
        for one in self._running:
            one.suite.outcome = "interrupted"
            one.keeper.terminate()
        for one in self._running:
            one.keeper.wait()
            one.suite.took_s = time.monotonic() - one.began_t

    def log(self, suite: Suite) -> Path:
        """The file that a suite writes to."""
        return self._logs / f"{suite.name}.log"

    def tally(self) -> tuple[int, int]:
        """How many tests passed and how many failed, by the closing lines of all logs."""
        counts = {"passed": 0, "failed": 0, "error": 0, "errors": 0}
        for suite in self._suites:
            with contextlib.suppress(FileNotFoundError):
                for closing in CLOSING.findall(self.log(suite).read_text(encoding="utf-8", errors="replace")):
                    for number, word in re.findall(r"(\d+) ([a-z]+)", closing):
                        counts[word] = counts.get(word, 0) + int(number)
        return counts["passed"], counts["failed"] + counts["error"] + counts["errors"]

    def table(self) -> Iterator[str]:
        """What each suite took, of how much, beside what, and what became of it."""
        yield f"{'stage':<7}{'suite':<12}{'took s':>7}{'of s':>7}  {'beside':<22}outcome"
        for suite in self._suites:
            beside = ", ".join(
                one.name for one in self._suites if one.stage == suite.stage and one is not suite
            )
            again = f", {suite.again} at the second try" if suite.again else ""
            over = ", over its minutes" if suite.took_s > suite.minutes * 60 else ""
            figures = f"{suite.took_s:>7.0f}{suite.minutes * 60:>7.0f}"
            yield f"{suite.stage:<7}{suite.name:<12}{figures}  {beside or 'nothing':<22}{suite.outcome}{again}{over}"

    def _start(self, suite: Suite) -> None:
        path = self.log(suite)
        suite.outcome = RUNNING
        say(f"{suite.name} begins: {' '.join(suite.command)}, log {path}")
        keeper = [sys.executable, __file__, f"--grace-s={self._grace_s}", "--keep", *suite.command]
        with path.open("wb") as log:
            process = subprocess.Popen(
                keeper, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        running = Running(suite, process, time.monotonic())
        self._running.append(running)
        threading.Thread(target=self._await_end, args=(running,), daemon=True).start()

    def _await_end(self, one: Running) -> None:
        one.keeper.wait()
        self._ended.put(one)

    def _await_all(self) -> None:
        beat_t = time.monotonic() + BEAT_S
        while self._running:
            deadlines = [one.deadline_t for one in self._running if one.suite.outcome == RUNNING]
            wait_s = max(0.0, min([beat_t, *deadlines]) - time.monotonic())
            with contextlib.suppress(queue.Empty):
                self._tell_end(self._ended.get(timeout=wait_s))
            for one in self._running:
                if one.suite.outcome == RUNNING and time.monotonic() >= one.deadline_t:
                    one.suite.outcome = "past twice its minutes"
                    say(f"{one.suite.name} is {one.suite.outcome}: ending it")
                    one.keeper.terminate()
            if self._running and time.monotonic() >= beat_t:
                beat_t += BEAT_S
                say(", ".join(map(str, self._running)))

    def _tell_end(self, one: Running) -> None:
        self._running.remove(one)
        suite, log = one.suite, self.log(one.suite)
        suite.took_s = time.monotonic() - one.began_t
        if suite.outcome == RUNNING:
            suite.outcome = f"exit {one.keeper.returncode}" if one.keeper.returncode else PASSED
        say(f"{suite.name} ends after {suite.took_s:.0f} s: {suite.outcome}")
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
        retried = "".join(RETRIED.findall(text)).rstrip()
        suite.again = len(AGAIN.findall(retried))
        if shown := retried if suite.outcome == PASSED else text:
            sys.stdout.write(f"---- {log}\n{shown}\n---- end of {log}\n")
            sys.stdout.flush()


def say(line: str) -> None:
    """Tell whoever watches, with the time of day."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def keep(command: list[str], grace_s: float) -> int:
    """Run a command as the parent of all that it starts, so that nothing outlives it; return its exit code.

    On SIGTERM, which also comes when the runner itself is killed, the command is interrupted as by Ctrl-C. What is
    still there after the grace period is killed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    signal.signal(signal.SIGTERM, _interrupt)
    child = code = None
    try:
        child = subprocess.Popen(command, start_new_session=True)
        code = _reap(child.pid)
    except OSError as error:
        sys.stdout.write(f"{command[0]}: {error.strerror}\n")
        code = 127
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if child is not None:
            _interrupt_and_wait(child.pid, grace_s)
    for pid in descendants():
        sys.stdout.write(f"{'killed' if code is None else 'left behind, so killed'}: {words_of(pid)}\n")
    while left := descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _reap(None)
    return 128 + signal.SIGTERM if code is None else code


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _reap(child: int | None) -> int | None:
    """Wait for children, also for those whose own parent has ended, until `child` ends; return its exit code.

    Without `child`, wait for one.
    """
    while True:
        pid, status = os.wait()
        if pid == child or child is None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _interrupt_and_wait(group: int, grace_s: float) -> None:
    """Send Ctrl-C's signal to a process group, and wait until nothing is left or the grace period is over."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGINT)
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, grace_s)
    with contextlib.suppress(KeyboardInterrupt, ChildProcessError):
        while True:
            _reap(None)
    signal.setitimer(signal.ITIMER_REAL, 0)


def descendants(of: int | None = None) -> list[int]:
    """The children of a process, by default of this one, and theirs; without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, also a parenthesis.
                state, parent, *_ = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found = children.get(of or os.getpid(), [])
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def words_of(pid: int) -> str:
    """A process in words."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return f"{pid} {command.strip()[:200]}"


def main() -> int:
    """Run the table that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=Path, default=Path("build", "ci"), help="directory of the logs")
    parser.add_argument("--limit-minutes", type=float, default=75.0, help="minutes for all suites together")
    parser.add_argument("--grace-s", type=float, default=20.0, help="seconds from interrupting to killing")
    parser.add_argument("--keep", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("table", type=Path, nargs="?", default=Path(".ci", "suites.txt"))
    options = parser.parse_args()
    if options.keep:
        return keep(options.keep, options.grace_s)
    try:
        suites = read_table(options.table.read_text(encoding="utf-8"))
        options.logs.mkdir(parents=True, exist_ok=True)
    except (OSError, TableError) as error:
        sys.stderr.write(f"{options.table}: {error}\n")
        return 2
    for suite in suites:
        (options.logs / f"{suite.name}.log").unlink(missing_ok=True)
    runner = Runner(suites, options.logs, options.grace_s)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    began = time.monotonic()
    try:
        passed: bool | None = runner.run()
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        runner.end()
        passed = None
    took_min = (time.monotonic() - began) / 60
    sys.stdout.write(
        "\n"
        + "\n".join(runner.table())
        + f"\nall suites: {took_min:.1f} of {options.limit_minutes:g} minutes\n"
    )
    if passed is None:
        return 130
    if not passed:
        return 1
    if took_min > options.limit_minutes:
        sys.stderr.write(f"all suites together took {took_min:.1f} minutes of {options.limit_minutes:g}\n")
        return 1
    sys.stdout.write("{} passed, {} failed\n".format(*runner.tally()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
