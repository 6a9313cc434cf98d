"""The records of turns, as the stream table keeps them, and when they are judged."""

from __future__ import annotations

import pytest

from helpers.events import T0, asked, audio, ended, feed
from omniwatch import events as ev
from omniwatch.core.turns import FEWEST, OPEN, Judged
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings, Streams


class Table(RecordedTable):
    """Keeps what was judged."""

    def __init__(self, client_buffer_ms: float | None = None) -> None:
        self.judged: list[Judged] = []
        super().__init__(
            Settings(streams=Streams(client_buffer_ms=client_buffer_ms or 0)), self.judged.append
        )

    @property
    def bad(self) -> list[Judged]:
        return [judged for judged in self.judged if judged.verdicts]


def arrived(t: float, ms: float, **fields: object) -> ev.Arrived:
    return ev.Arrived(t=T0 + t, stream="a", turn=1, ms=ms, **fields)


def turn(
    begin: float, thinking: float = 0.2, number: int = 1, stream: str = "a", seconds: int = 2
) -> list[ev.Event]:
    first = begin + thinking + 0.1
    return [
        asked(begin, number, stream),
        ev.Text(t=T0 + begin + thinking, stream=stream, turn=number),
        *(audio(first + n / 2, stream, turn=number, dur_ms=1000) for n in range(seconds)),
        ended(first + seconds / 2, number, stream=stream),
    ]


def bad(target: Table) -> list[tuple[str, str]]:
    return [(v.symptom, v.cause) for judged in target.bad for v in judged.verdicts]


def test_a_turn_is_judged_six_seconds_after_it_was_heard():
    target = Table()
    feed(target, *turn(0, thinking=1.5))
    target.advance(T0 + 9.6)
    assert not target.bad
    target.advance(T0 + 9.8)
    assert bad(target) == [("late", "thinking")]
    assert len(target.judged) == 1


def test_a_late_word_of_the_client_still_counts():
    def played(report_t: float) -> Table:
        target = Table()
        feed(target, ev.StreamStart(t=T0, stream="a"), *turn(0))
        target.advance(T0 + report_t)
        feed(target, ev.Underrun(t=T0 + report_t, stream="a", turn=1, ms=900, source="player"))
        target.advance(T0 + 30)
        return target

    assert bad(played(6.5)) == [("starved", "unknown")]
    assert bad(played(9.0)) == []


def test_a_guess_of_the_clients_is_no_word():
    target = Table()
    feed(target, *turn(0), ev.Underrun(t=T0 + 3, stream="a", turn=1, ms=900, source="framework"))
    target.advance(T0 + 30)
    assert bad(target) == []


def test_what_the_kernel_says_makes_the_record():
    target = Table()
    feed(
        target,
        ev.TurnStart(t=T0, stream="a", turn=1, ear="kernel"),
        audio(0.4, turn=1, dur_ms=1000),
        arrived(0.6, 1000.0, ago_ms=100.0, least_rtt_ms=80.0, retrans=1),
        audio(0.9, turn=1, dur_ms=1000),
        arrived(1.9, 1000.0, waiting=64_000, window_ms=300.0, paused_ms=150.0),
        arrived(3.0, 2000.0, retrans=2, window_ms=100.0),
        ended(1.4),
    )
    target.advance(T0 + 20)
    (judged,) = target.bad
    record = judged.record
    assert record.rtt_ms == pytest.approx(540)
    assert [(round(p.t - T0, 1), p.ms, p.window_ms) for p in record.arrived] == [
        (0.5, 1000.0, 0.0),
        (3.0, 1000.0, 400.0),
    ]
    assert (record.retrans, record.waiting, record.pauses) == (3, 64_000, [(T0 + 1.9, 150.0)])
    assert [(v.symptom, v.cause) for v in judged.verdicts] == [("starved", "network")]


def test_other_turns_are_counted_while_they_are_answered():
    target = Table()
    feed(target, asked(0, 1, "b"), *turn(1, thinking=1.5), ended(9, 1, stream="b"))
    target.advance(T0 + 30)
    (judged,) = target.bad
    assert not judged.record.alone
    assert judged.record.others_s(T0 + 1, T0 + 2) == pytest.approx(1)
    assert judged.record.others_s(T0, T0 + 1) == pytest.approx(0, abs=1e-6)


def test_an_interrupted_turn_has_no_verdict_and_is_no_longer_answered():
    target = Table()
    feed(target, *turn(0, thinking=1.5)[:3], *turn(3, number=2), *turn(20, stream="b"))
    target.advance(T0 + 40)
    assert bad(target) == []
    assert [(judged.record.number, judged.record.alone) for judged in target.judged] == [
        (2, False),
        (3, True),
    ]


def test_what_is_usual_is_learnt_of_good_turns_that_began_alone():
    target = Table()
    for n in range(FEWEST):
        feed(target, *turn(20 * n, thinking=0.5, number=n))
        target.advance(T0 + 20 * n + 19)
    feed(target, *turn(20 * FEWEST, thinking=1.5, number=FEWEST))
    target.advance(T0 + 20 * FEWEST + 19)
    (judged,) = target.bad
    assert judged.verdicts[0].excess_ms == pytest.approx(1000)
    assert judged.verdicts[0].parts["thinking"] == pytest.approx(1000)


def test_a_writer_is_new_once():
    target = Table()
    for n in range(5):
        first, *rest = turn(20 * n, thinking=1.5, number=n)
        first.w, first.n = "w", 100 * n
        feed(target, first, *rest)
        target.advance(T0 + 20 * n + 19)
    assert bad(target) == [("late", "warmup")] * 3 + [("late", "thinking")] * 2
    old = Table()
    first, *rest = turn(0, thinking=1.5)
    first.w, first.n = "w", 50_000
    feed(old, first, *rest)
    old.advance(T0 + 30)
    assert bad(old) == [("late", "thinking")]


def test_a_turn_in_which_the_clock_was_set_has_no_verdict():
    target = Table()
    for event in turn(0, thinking=1.5, seconds=4):
        event.m = event.t - T0 + 50
        if event.t > T0 + 2:
            event.t += 3
        target.apply(event)
    target.advance(T0 + 40)
    assert bad(target) == []


def stated(t: float, drift_ms: float) -> ev.Audio:
    return audio(t, turn=1, pts_ms=1000 * t + drift_ms, video_pts_ms=1000 * t)


@pytest.mark.parametrize(("jumps", "cause"), [(False, "camera"), (True, "timestamps")])
def test_a_stated_drift_slid_or_jumped(jumps, cause):
    target = Table()
    drifts = [0.0] * 20 + [90.0] * 20 if jumps else [3.0 * n for n in range(40)]
    feed(target, asked(0), *(stated(0.3 + 0.08 * n, ms) for n, ms in enumerate(drifts)), ended(4))
    target.advance(T0 + 30)
    assert bad(target) == [("skewed", cause)]


def test_a_jump_at_a_return_is_the_cuts():
    target = Table()
    before = [stated(0.3 + 0.08 * n, 0.0) for n in range(20)]
    after = [stated(3.0 + 0.08 * n, 90.0) for n in range(20)]
    back = ev.Resume(t=T0 + 2.9, stream="a", last_good_id=1, result="hit")
    feed(target, asked(0), *before, back, *after, ended(5))
    target.advance(T0 + 30)
    assert ("skewed", "cut") in bad(target)


def test_frames_sent_twice_count_once():
    target = Table()
    first, text, *frames, end = turn(0, thinking=1.5, seconds=4)
    for number, frame in enumerate(frames):
        frame.frame_id = 13 * number
    feed(target, first, text, *frames[:2], frames[1], *frames[2:], end)
    target.finish()
    (judged,) = target.judged
    assert judged.record.sent_ms == 4000


def test_a_turn_of_a_listener_who_went_away_has_no_verdict():
    def followed(*word: ev.Event) -> list[Judged]:
        target = Table()
        first, *rest = turn(0, thinking=1.5, seconds=8)
        first.ear = "kernel"
        closed = ev.StreamEnd(t=T0 + 25, stream="a", reason="closed")
        feed(target, *sorted([first, *rest, *word, closed], key=lambda event: event.t))
        target.finish()
        return target.bad

    every_second = [arrived(2 + n, 0.0, waiting=64_000) for n in range(22)]
    there = [arrived(1.7 + n / 2, 1000.0 * (n + 1)) for n in range(8)]
    assert followed(*every_second) == []
    assert [v.cause for judged in followed(*there) for v in judged.verdicts] == ["thinking"]


def test_what_was_sent_runs_ahead_of_a_small_buffer():
    for buffer_ms, symptoms in ((None, []), (2000, [("overrun", "ahead")]), (8000, [])):
        target = Table(buffer_ms)
        feed(target, *turn(0, seconds=6))
        target.finish()
        assert bad(target) == symptoms


def test_a_turn_that_is_open_at_the_end_has_no_verdict():
    target = Table()
    feed(target, *turn(0, thinking=1.5)[:-1])
    target.finish()
    assert target.judged == []


def test_the_records_of_open_turns_are_bounded():
    target = Table()
    for n in range(3 * OPEN):
        target.apply(asked(n / 100, 1, f"x{n}"))
    for n in range(3 * OPEN):
        target.apply(ended(10 + n / 100, 1, "failed", f"x{n}"))
    target.finish()
    assert [judged.record.number for judged in target.judged] == list(range(2 * OPEN + 1, 3 * OPEN + 1))
