"""The command that writes a simulated server's events: pace, rotation, pipes, and what it says."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.desk.simulation.realtime import paced
from omniwatch.ingest.intake import Intake
from omniwatch.replay import Replay
from omniwatch.replay.recording import Recording
from omniwatch.settings import Settings

T0 = 1_700_000_000.0
SIMULATE = [sys.executable, "-m", "omniwatch", "simulate"]


def script(name: str) -> list[ev.Event]:
    return list(events(SCENARIOS[name], 1, 0.0, SCENARIOS[name].duration_s))


class Clock:
    """A clock that only sleeping and working move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_pace_keeps_to_deadlines_that_do_not_slip():
    clock = Clock()
    marks = [ev.Video(t=T0 + i, stream="a", pts_ms=0) for i in range(10)]
    for number, event in enumerate(paced(marks, 2.0, clock.monotonic, clock.sleep)):
        assert clock.now == pytest.approx(max(100 + (event.t - T0) / 2, clock.now))
        clock.now += 0.6 if number == 3 else 0.01
    assert clock.now == pytest.approx(100 + 9 / 2 + 0.01)
    assert sum(clock.slept) == pytest.approx(4.5 - 0.6 - 8 * 0.01)


def test_pace_without_a_speed_never_waits():
    clock = Clock()
    marks = [ev.Video(t=T0 + i, stream="a", pts_ms=0) for i in range(10)]
    assert list(paced(marks, 0.0, clock.monotonic, clock.sleep)) == marks
    assert clock.slept == []


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["simulate", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_rotated_file_reads_back_whole_from_number_0(tmp_path):
    out = tmp_path / "events.jsonl"
    assert run("--scenario", "two-streams", "--speed", "max", f"--out={out}", "--rotate-bytes=500000") == (
        0,
        "",
        "",
    )
    pieces = sorted(tmp_path.iterdir(), reverse=True)
    assert [piece.name for piece in pieces] == ["events.jsonl.2", "events.jsonl.1", "events.jsonl"]
    assert all(piece.stat().st_size <= 500_000 for piece in pieces)
    read = ev.decode_lines(b"".join(piece.read_bytes() for piece in pieces))
    assert [event.n for event in read] == list(range(len(script("two-streams"))))
    assert len({event.w for event in read}) == 1
    assert [type(event) for event in read] == [type(event) for event in script("two-streams")]


def test_standard_output_is_the_same_bytes_for_the_same_seed():
    arguments = ("--scenario", "handover-120", "--speed", "0", "--duration", "30", "--start-time", str(T0))
    code, first, errors = run(*arguments)
    assert (code, errors) == (0, "")
    assert run(*arguments)[1] == first
    assert run(*arguments, "--seed=2")[1] != first
    assert ev.decode_lines(first.encode()) == list(events(SCENARIOS["handover-120"], 1, T0, 30))


def test_speed_changes_when_events_are_written_not_what_they_are():
    arguments = ("--scenario", "steady", "--duration", "5", "--start-time", str(T0))
    assert run(*arguments, "--speed=100") == run(*arguments, "--speed=max")


def test_the_list_states_what_each_should_look_like():
    code, listed, _ = run("--list")
    assert code == 0
    for scenario in SCENARIOS.values():
        assert f"{scenario.name}  ({scenario.duration_s:g} s" in listed
        assert scenario.summary in " ".join(listed.split())
    assert "fault from 10 s to 45 s, CodecDrift must fire" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--scenario", "stedy"],
            r"no scenario 'stedy'; the closest is 'steady'; there are steady, progressive",
        ),
        (["--scenario", "x9"], "no scenario 'x9'; there are steady, "),
        ([], "which --scenario"),
        (
            ["--scenario", "steady", "--speed", "fast"],
            "--speed: expected a number >= 0 or \"max\", got 'fast'",
        ),
        (["--scenario", "steady", "--speed", "-1"], "--speed: expected"),
        (["--scenario", "steady", "--speed", "nan"], "--speed: expected"),
        (["--scenario", "steady", "--fault-at", "3"], "steady has no fault to move"),
        (
            ["--scenario", "stall", "--mend-at", "3"],
            "stall: the fault must begin at 0 s or later and be mended",
        ),
        (["--scenario", "steady", "--out", "no/such/file"], "no/such/file: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run(*arguments)
    assert (code, printed) == (2, "")
    assert re.match(f"Error: {message}", errors)
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--duration", "--start-time", "--fault-at", "--mend-at"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_time_without_end_is_refused(option, value):
    code, printed, errors = run("--scenario", "stall", "--speed", "max", option, value)
    assert (code, printed) == (2, "")
    assert f"'{option}': {value} is not a finite number." in errors


@pytest.mark.parametrize("speed", ["1", "max"])
def test_a_reader_that_goes_away_ends_it_quietly(speed):
    pipeline = f"{sys.executable} -m omniwatch simulate --scenario steady --speed {speed} | head -n 3"
    done = subprocess.run(pipeline, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 3


def test_an_interrupt_ends_it_quietly_with_all_lines_whole(tmp_path):
    out = tmp_path / "events.jsonl"
    with subprocess.Popen(
        [*SIMULATE, "--scenario", "steady", "--speed=50", f"--out={out}"], stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: out.exists() and out.stat().st_size > 10_000)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (None, "")
    assert process.returncode == 0
    assert out.read_bytes().endswith(b"\n")


def test_it_tells_a_terminal_how_far_it_is(tmp_path):
    terminal, side = pty.openpty()
    arguments = ["--scenario=stall", "--speed=max", "--duration=30", f"--out={tmp_path / 'e'}"]
    subprocess.run([*SIMULATE, *arguments], stderr=side, timeout=60, check=True)
    os.close(side)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    made = len(list(events(SCENARIOS["stall"], 1, 0.0, 30.0)))
    assert re.search(r"\rstall  0 of 30 s  1 events  healthy\x1b\[K", shown)
    assert shown.endswith(f"\rstall  29 of 30 s  {made} events  fault\x1b[K\r\n")


def test_a_simulation_feeds_the_sidecars_own_reader(tmp_path):
    out = tmp_path / "events.jsonl"
    assert run("--scenario=corrupt-frames", "--speed=max", f"--out={out}")[0] == 0
    recording, replay = Recording(str(out)), Replay(Settings())
    intake = Intake(recording)
    while not recording.caught_up:
        intake.step(replay, 65536)
    kinds = Counter(ev.EV_OF[type(event)] for event in script("corrupt-frames"))
    assert {kind: n for kind, n in intake.counts.events.items() if n} == kinds
    assert (intake.sequence.lost, intake.sequence.repeated) == (0, 0)
    assert sum(intake.counts.invalid.values()) == 0
