"""`.ci/run`: its table, and its runner with suites made for it: one fails, one hangs, one leaves a process behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.waiting import wait_until

CI = CLONE / ".ci"
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with open(sys.argv[1], "w") as file:
            print(os.getpid(), file=file)
        time.sleep(600)
    os._exit(0)
os.wait()
"""
"""Leaves a process of a session of its own behind, which no Ctrl-C ends and whose parent is gone; its id is in the file named."""
PASSES = "echo '3 passed, 1 skipped in 0.12s'"


class Ci:
    """A runner on a table of scripts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self.pid_file = directory / "daemon.pid"
        (directory / "daemon.py").write_text(DAEMON)
        self.daemon = f"{sys.executable} {directory}/daemon.py {self.pid_file}"

    def start(self, *suites: tuple[int, str, float, str], flags: str = "") -> subprocess.Popen[str]:
        """Run suites: stage, name, minutes, script."""
        lines = []
        for stage, name, minutes, script in suites:
            path = self.directory / f"{name}.sh"
            path.write_text(script)
            lines.append(f"{stage} {name} {minutes} sh {path}\n")
        table = self.directory / "suites.txt"
        table.write_text("# stage suite minutes command\n\n" + "".join(lines))
        command = [
            sys.executable,
            str(CI / "runner.py"),
            f"--logs={self.logs}",
            "--grace-s=1",
            *flags.split(),
        ]
        return subprocess.Popen(
            [*command, str(table)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *suites: tuple[int, str, float, str], flags: str = "") -> tuple[int, str]:
        """Run suites to the end; return the exit code and what was told."""
        with self.start(*suites, flags=flags) as runner:
            told, _ = runner.communicate(timeout=60)
        return runner.returncode, told

    def daemon_pid(self) -> int:
        return int(
            wait_until(lambda: self.pid_file.exists() and self.pid_file.read_text(), what="the daemon")
        )


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[Ci]:
    made = Ci(tmp_path)
    yield made
    if made.pid_file.exists():
        assert not is_alive(made.daemon_pid()), "the runner leaves nothing behind"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def outcomes(told: str) -> dict[str, str]:
    """What the table at the end says of each suite."""
    table = told[told.index("stage  suite") :]
    rows = re.findall(r"^\d+ +(\w+) +\d+ +\d+  (?:nothing|(?:\w+(?:, )?)+?) {2,}(.+)$", table, re.MULTILINE)
    return dict(rows)


def test_suites_that_pass_are_counted_together(ci: Ci) -> None:
    # Each of the two waits for the other: they run side by side.
    meets = "touch {0}.here; until [ -e {1}.here ]; do sleep 0.01; done; " + PASSES
    here = str(ci.directory)
    code, told = ci.run(
        (
            1,
            "first",
            1,
            "echo '===== 20 passed in 61.20s (0:01:01) ====='; echo '1 passed, 2 warnings in 0.1s'",
        ),
        (2, "left", 1, meets.format(f"{here}/left", f"{here}/right")),
        (2, "right", 1, meets.format(f"{here}/right", f"{here}/left")),
    )
    assert code == 0, told
    assert told.endswith("\n27 passed, 0 failed\n")
    assert outcomes(told) == {"first": "passed", "left": "passed", "right": "passed"}
    assert re.search(r"^2 +left .*  right +passed$", told, re.MULTILINE)
    assert (ci.logs / "left.log").read_text() == "3 passed, 1 skipped in 0.12s\n"


def test_a_suite_that_fails_has_its_log_told_once_and_ends_the_run_after_its_stage(ci: Ci) -> None:
    # The other one goes on until the first has failed, and passes.
    ended = ci.directory / "ended"
    code, told = ci.run(
        (1, "bad", 1, f"echo one; echo two >&2; touch {ended}; exit 3"),
        (1, "good", 1, f"until [ -e {ended} ]; do sleep 0.01; done; echo unseen; {PASSES}"),
        (2, "later", 1, "echo unseen"),
    )
    assert code == 1
    assert outcomes(told) == {"bad": "exit 3", "good": "passed", "later": "not run"}
    log = ci.logs / "bad.log"
    assert told.count(f"---- {log}\none\ntwo\n---- end of {log}\n") == 1
    assert "unseen" not in told
    assert not (ci.logs / "later.log").exists()
    assert not told.endswith(" failed\n")


def test_a_test_that_passes_at_the_second_try_is_shown_and_counted(ci: Ci) -> None:
    # As `.ci/run` has it: the flags that the suites' pytest gets are read there.
    flags = re.findall(r'^export PYTEST_ADDOPTS="(.*)"$', (CI / "run").read_text(), re.MULTILINE)
    (ci.directory / "test_odd.py").write_text(
        "import pathlib\n\n"
        "def test_second():\n"
        f"    mark = pathlib.Path({str(ci.directory / 'mark')!r})\n"
        "    there = mark.exists()\n"
        "    mark.touch()\n"
        "    assert there, 'the first try'\n\n"
        "def test_first(): pass\n"
    )
    pytest_ = f"cd {ci.directory}; {sys.executable} -m pytest -q {flags[0]}"
    code, told = ci.run((1, "odd", 1, pytest_), (2, "steady", 1, PASSES))
    assert code == 0, told
    assert outcomes(told) == {"odd": "passed, 1 at the second try", "steady": "passed"}
    assert told.count("AssertionError: the first try") == 1
    assert told.endswith("\n5 passed, 0 failed\n")


@pytest.mark.slow
def test_a_suite_that_hangs_is_ended_with_all_that_it_started(ci: Ci) -> None:
    hangs = f"{ci.daemon}; trap 'echo interrupted' INT; sleep 600 & wait; wait"
    code, told = ci.run((1, "hangs", 0.02, hangs), (2, "later", 1, PASSES))
    assert code == 1
    assert outcomes(told) == {"hangs": "past twice its minutes, over its minutes", "later": "not run"}
    assert "interrupted\n" in told, "a suite may put its things in order"
    assert f"killed: {ci.daemon_pid()} " in told


def test_what_a_suite_that_passed_left_behind_is_ended_too(ci: Ci) -> None:
    # What has not said which process it is would be ended before it could.
    until_told = f"until test -s {ci.pid_file}; do sleep 0.01; done"
    code, told = ci.run((1, "forgets", 1, f"{ci.daemon}; {until_told}; {PASSES}"))
    assert code == 0, told
    assert f"left behind, so killed: {ci.daemon_pid()} " in (ci.logs / "forgets.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all(ci: Ci, number: signal.Signals) -> None:
    with ci.start(
        (1, "one", 1, f"{ci.daemon}; sleep 600"), (1, "two", 1, "sleep 600"), (2, "later", 1, PASSES)
    ) as runner:
        ci.daemon_pid()
        runner.send_signal(number)
        told, _ = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert outcomes(told) == {"one": "interrupted", "two": "interrupted", "later": "not run"}


def test_a_runner_that_is_killed_takes_its_suites_with_it(ci: Ci) -> None:
    with ci.start((1, "one", 1, f"{ci.daemon}; sleep 600")) as runner:
        pid = ci.daemon_pid()
        runner.kill()
        wait_until(lambda: not is_alive(pid), what="the daemon to end")


def test_all_together_may_not_take_longer_than_their_limit(ci: Ci) -> None:
    code, told = ci.run((1, "one", 1, PASSES), flags="--limit-minutes=0.0001")
    assert code == 1
    assert "all suites together took 0.0 minutes of 0.0001\n" in told
    assert outcomes(told) == {"one": "passed"}


@pytest.mark.parametrize(
    "line", ["1 test", "1 test 10", "1 test ten make", "1 test 0 make", "1 one 1 true\n1 one 1 true"]
)
def test_a_bad_table_is_one_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "suites.txt").write_text(line)
    done = subprocess.run(
        [sys.executable, str(CI / "runner.py"), str(tmp_path / "suites.txt")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"\S+suites.txt: line \d: .+\n", done.stderr)


def rows() -> list[tuple[str, str, float, str]]:
    """The table of this clone: stage, suite, minutes, command."""
    lines = (CI / "suites.txt").read_text().splitlines()
    split = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    return [(stage, name, float(minutes), command) for stage, name, minutes, command in split]


def test_the_minutes_of_all_stages_are_at_most_an_hour() -> None:
    stages = groupby(rows(), lambda row: row[0])
    assert sum(max(minutes for _, _, minutes, _ in stage) for _, stage in stages) <= 60


def test_the_first_stage_installs_every_package_that_a_suite_asks_for() -> None:
    first, *others = rows()
    installed, *_ = packages(first[3])
    asked = [words for _, _, _, command in others for words in packages(command)]
    assert len(asked) > 5
    assert set.union(*asked) <= installed


def packages(command: str) -> list[set[str]]:
    """What deploy/setup.sh is asked for, each time, when make runs this."""
    make, *targets = command.split()
    done = subprocess.run(
        [make, "--dry-run", *targets], cwd=CLONE, capture_output=True, text=True, check=True
    )
    return [set(words.split()) for words in re.findall(r"deploy/setup\.sh (.+)", done.stdout)]
