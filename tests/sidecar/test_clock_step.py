"""The clock set back under listeners who then say nothing more: they leave, or are missed, in the time as it goes now."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniwatch import events as ev
from omniwatch.settings import Settings
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.spec import open_source
from omniwatch.tap.spool import Spool

T0 = 1_790_000_000.0
AHEAD_S = 8 * 3600.0


class Bench:
    """A sidecar on an event file, its clocks set by hand: the wall's is `ahead` of T0 and the steady one."""

    def __init__(self, directory: Path) -> None:
        self.steady, self.ahead = 0.0, AHEAD_S
        self._path, self._state = directory / "events.jsonl", directory / "checkpoint"
        self._spool = Spool(self._path)
        self.boot = "first"
        self.sidecar = self.start()

    def start(self) -> Sidecar:
        self.sidecar = Sidecar(
            Settings(),
            [open_source(str(self._path))],
            state_file=self._state,
            boot=self.boot,
            clock=lambda: T0 + self.steady + self.ahead,
            monotonic=lambda: self.steady,
        )
        return self.sidecar

    def say(self, *events: ev.Event) -> None:
        for event in events:
            self._spool.write(event)

    def t(self) -> float:
        return T0 + self.steady + self.ahead

    def answered(self, stream: str = "a") -> None:
        """A listener asks, and hears all of an answer that is 300 ms out."""
        self.say(ev.TurnStart(t=self.t(), stream=stream, turn=1))
        for _ in range(20):
            self.steady += 0.08
            self.say(ev.Audio(t=self.t(), stream=stream, turn=1, pts_ms=0.0, video_pts_ms=300.0))
        self.say(ev.TurnEnd(t=self.t(), stream=stream, turn=1, reason="stop"))

    def live(self) -> list[str]:
        return [stream["id"] for stream in self.sidecar.streams()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_listener_who_left_before_the_clock_was_set_back_leaves_the_table(bench: Bench) -> None:
    bench.answered()
    assert bench.live() == ["a"]
    bench.ahead = 0.0
    assert bench.live() == ["a"]
    bench.steady += 61
    assert bench.live() == []


def test_what_was_written_before_the_step_and_is_read_after_it_does_not_stay(bench: Bench) -> None:
    bench.answered()
    bench.sidecar.step()
    late = ev.Video(t=bench.t(), stream="b", pts_ms=0.0)
    bench.ahead = 0.0
    bench.sidecar.step()
    bench.steady += 0.5
    bench.say(late, *(ev.Audio(t=late.t, stream="a") for _ in range(3000)))
    bench.sidecar.step()
    bench.steady += 6
    assert set(bench.live()) == {"a", "b"}
    bench.steady += 120
    assert bench.live() == []


def test_what_is_unread_from_before_the_step_is_read_in_its_own_time(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    for _ in range(3000):
        bench.steady += 0.08
        bench.say(ev.Audio(t=bench.t(), stream="a", turn=1))
    bench.ahead = 0.0
    while bench.sidecar.step():
        bench.steady += 0.1
    assert bench.live() == ["a"]
    assert bench.sidecar.table.totals.turns["abandoned"] == 0


def test_a_listener_who_waits_is_missed_although_the_clock_was_set_back(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    bench.sidecar.step()
    bench.steady += 3
    bench.ahead = 0.0
    (waiting,) = bench.sidecar.streams()
    assert waiting["silent_s"] == pytest.approx(3)
    bench.steady += 4
    (waiting,) = bench.sidecar.streams()
    assert waiting["silent_s"] == pytest.approx(7)
    bench.say(ev.Audio(t=bench.t(), stream="a", turn=1))
    (waiting,) = bench.sidecar.streams()
    assert waiting["rtt_ms"] == pytest.approx(7000)


def test_a_listener_with_a_camera_who_waits_is_missed_too(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    for n in range(60):
        bench.ahead = AHEAD_S if n < 20 else 0.0
        bench.say(ev.Video(t=bench.t(), stream="a", pts_ms=100.0 * n))
        bench.sidecar.step()
        bench.steady += 0.1
    (waiting,) = bench.sidecar.streams()
    assert waiting["silent_s"] == pytest.approx(6, abs=0.2)
    bench.say(ev.Audio(t=bench.t(), stream="a", turn=1))
    (waiting,) = bench.sidecar.streams()
    assert waiting["rtt_ms"] == pytest.approx(6000, abs=200)


@pytest.mark.parametrize("first", ["a picture", "a realignment"])
def test_what_is_said_of_a_speaker_before_the_speech_after_the_step_is_no_drift(
    bench: Bench, first: str
) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    for _ in range(20):
        bench.steady += 0.08
        bench.say(ev.Audio(t=bench.t(), stream="a", turn=1))
        bench.sidecar.step()
    bench.ahead = 0.0
    bench.steady += 0.05
    picture = ev.Video(t=bench.t(), stream="a", pts_ms=2000.0)
    realignment = ev.Realign(t=bench.t(), stream="a", shift_ms=50.0)
    bench.say(picture if first == "a picture" else realignment)
    bench.sidecar.step()
    bench.steady += 1.5
    (stalled,) = bench.sidecar.streams()
    assert stalled["drift_ms"] == pytest.approx(0, abs=60)
    for _ in range(20):
        bench.steady += 0.08
        bench.say(ev.Audio(t=bench.t(), stream="a", turn=1))
        bench.sidecar.step()
    (speaking,) = bench.sidecar.streams()
    assert abs(speaking["drift_ms"]) < 200
    assert abs(speaking["drift_worst_ms"]) < 200


def test_a_turn_that_goes_on_is_measured_as_if_no_step_had_been(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    bench.say(ev.Video(t=bench.t(), stream="a", pts_ms=0.0))
    bench.say(ev.Audio(t=bench.t(), stream="a", turn=1, dur_ms=4000.0))
    bench.sidecar.step()
    bench.steady += 2
    bench.ahead = 0.0
    bench.sidecar.step()
    bench.steady += 1
    bench.say(ev.Video(t=bench.t(), stream="a", pts_ms=3000.0))
    (speaking,) = bench.sidecar.streams()
    assert speaking["drift_ms"] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("boot", ["first", "second"])
def test_a_step_while_no_sidecar_ran(bench: Bench, boot: str) -> None:
    bench.answered()
    assert bench.live() == ["a"]
    list(bench.sidecar.collect())
    bench.sidecar.close()
    bench.ahead, bench.boot = 0.0, boot
    bench.start()
    assert bench.live() == ["a"]
    bench.steady += 61
    assert bench.live() == []


def test_a_clock_that_is_only_slowed_moves_nobody(bench: Bench) -> None:
    bench.answered()
    for _ in range(100):
        bench.steady += 0.1
        bench.ahead -= 0.06
        bench.sidecar.step()
    (stream,) = bench.sidecar.streams()
    assert stream["last_event"] == pytest.approx(T0 + AHEAD_S + 1.6)


def test_an_old_file_is_not_moved_to_the_present(bench: Bench) -> None:
    bench.ahead -= 1e6
    bench.answered()
    bench.ahead += 1e6
    bench.sidecar.step()
    assert bench.live() == []


def speaking_through_a_step(bench: Bench, step_s: float, *, monotonic: bool, read_between: bool) -> None:
    """A question, its answer after 300 ms, 2 s of speech; the clock is set both before the answer and within it."""

    def say(kind: type[ev.Event], **fields: object) -> None:
        m = bench.steady if monotonic else None
        bench.say(kind(t=bench.t(), stream="a", m=m, turn=1, **fields))
        if read_between:
            bench.sidecar.step()

    bench.sidecar.step()
    bench.steady += 5
    say(ev.TurnStart)
    bench.steady += 0.2
    bench.ahead += step_s
    bench.steady += 0.1
    for n in range(25):
        say(ev.Audio)
        bench.steady += 0.08
        if n == 12:
            bench.ahead += step_s


@pytest.mark.parametrize("read_between", [True, False])
@pytest.mark.parametrize("step_s", [30.0, 600.0, 2.0, -2.0, -4.0, -600.0])
def test_a_writer_with_a_monotonic_time_is_measured_as_if_no_step_had_been(
    bench: Bench, step_s: float, read_between: bool
) -> None:
    speaking_through_a_step(bench, step_s, monotonic=True, read_between=read_between)
    (stream,) = bench.sidecar.streams()
    assert stream["rtt_ms"] == pytest.approx(300, abs=1)
    assert stream["silent_s"] == 0
    assert abs(stream["drift_worst_ms"]) < 100
    totals = bench.sidecar.table.totals
    assert totals.audio_underrun_seconds == pytest.approx(0, abs=1e-3)
    assert (totals.answers_unmeasured, totals.turns["abandoned"]) == (0, 0)


@pytest.mark.parametrize("step_s", [30.0, 600.0, 2.0])
def test_a_step_is_recognised_across_streams_whose_writer_gives_no_monotonic_time(
    bench: Bench, step_s: float
) -> None:
    speaking_through_a_step(bench, step_s, monotonic=False, read_between=True)
    (stream,) = bench.sidecar.streams()
    assert stream["rtt_ms"] == pytest.approx(300, abs=1)
    assert abs(stream["drift_worst_ms"]) < 100
    assert bench.sidecar.table.totals.audio_underrun_seconds == pytest.approx(0, abs=1e-3)


def test_an_answer_from_before_its_question_is_not_measured_and_counted(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    bench.ahead -= 4
    bench.say(ev.Audio(t=bench.t() + 0.3, stream="a", turn=1))
    (stream,) = bench.sidecar.streams()
    assert stream["rtt_ms"] is None
    assert bench.sidecar.table.totals.answers_unmeasured == 1


def test_a_listener_who_waits_has_not_waited_for_the_step(bench: Bench) -> None:
    bench.say(ev.TurnStart(t=bench.t(), stream="a", turn=1))
    bench.sidecar.step()
    bench.steady += 2
    bench.ahead += 30
    (waiting,) = bench.sidecar.streams()
    assert waiting["silent_s"] == pytest.approx(2)
