"""The stream table, where clients do what it cannot see: make good what their network did, speak up again and again."""

from __future__ import annotations

import pytest

from omniwatch import events as ev
from omniwatch.core.drift import RECENT_S
from omniwatch.core.stream import TURNS_KEPT, Stream
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings

T0 = 1_700_000_000.0


def feed(target: StreamTable, *events: ev.Event) -> Stream:
    for event in events:
        target.apply(event)
    return target.state.streams["a"]


def audio(t: float, turn: ev.Turn = 1, dur_ms: float = 80.0) -> ev.Audio:
    return ev.Audio(t=T0 + t, stream="a", turn=turn, dur_ms=dur_ms)


def realign(t: float, shift_ms: float) -> ev.Realign:
    return ev.Realign(t=T0 + t, stream="a", shift_ms=shift_ms)


def video(t: float, pts_ms: float) -> ev.Video:
    return ev.Video(t=T0 + t, stream="a", pts_ms=pts_ms)


@pytest.mark.parametrize("with_video", [False, True])
@pytest.mark.parametrize(
    ("starved_ms", "shift_ms", "left_ms"),
    [
        (0, -530, 0),
        (0, 90, 0),
        (120, -650, 0),
        (120, -50, -70),
        (120, 300, -120),
    ],
)
def test_a_realignment_takes_no_drift_away_that_the_model_never_had(
    starved_ms, shift_ms, left_ms, with_video
):
    live = StreamTable(Settings())
    if with_video:
        feed(live, *(video(n / 4, n * 250) for n in range(4)))
    feed(live, audio(1, dur_ms=920.0), audio(2 + starved_ms / 1000, dur_ms=9000.0))
    if with_video:
        feed(live, *(video(n / 4, n * 250) for n in range(9, 17)))
    stream = feed(live, realign(4.1, shift_ms))
    if with_video:
        feed(live, video(4.2, 4200))
    assert live.drift_ms(stream, T0 + 4.2) == pytest.approx(left_ms, abs=1e-3)
    assert live.cumulative_ms(stream, T0 + 4.2) == pytest.approx(-starved_ms, abs=1e-3)
    assert live.totals.codec_realign == 1


def test_realignments_between_two_frames_of_the_picture_take_the_same_drift_away_once():
    live = StreamTable(Settings())
    feed(live, video(0.9, 900), audio(1, dur_ms=920.0), audio(2.2, dur_ms=9000.0))
    feed(live, video(3, 3000), realign(3.1, -150), realign(3.2, -150))
    stream = feed(live, video(3.3, 3300))
    assert stream.drift_ms == pytest.approx(0, abs=1e-3)
    assert live.cumulative_ms(stream, T0 + 3.3) == pytest.approx(-200, abs=1e-3)


def test_who_asks_for_what_is_not_there_is_counted_and_is_no_listener():
    live = StreamTable(Settings())
    live.apply(ev.Resume(t=T0, stream="unknown", last_good_id=0, result="unknown"))
    live.apply(ev.Rtx(t=T0, stream="unknown", from_id=0, count=0, result="miss"))
    assert live.streams == []
    assert (live.totals.resume_requests["unknown"], live.totals.rtx_requests["miss"]) == (1, 1)
    feed(live, audio(0))
    live.apply(ev.Resume(t=T0 + 90, stream="a", last_good_id=0, result="hit"))
    assert live.streams == [], "gone stale before it came back; the first it is told opens it again"


def test_a_server_that_uses_a_number_again_begins_another_turn():
    live, t = StreamTable(Settings()), 0.0
    for n in range(24):
        for _ in range(13):
            t += 0.08
            feed(live, audio(t, n % 4))
        feed(live, ev.TurnEnd(t=T0 + t, stream="a", turn=n % 4, reason="stop"))
        t += 1.5
        live.advance(T0 + t)
    assert live.totals.turns["completed"] == 24


@pytest.mark.parametrize("at_once", [2, 3, TURNS_KEPT])
def test_of_turns_that_are_spoken_at_once_only_the_last_is_heard_and_each_began_once(at_once):
    live = StreamTable(Settings())
    for turn in range(at_once):
        asked = ev.TurnStart(t=T0 + turn, stream="a", turn=turn)
        feed(live, asked, audio(turn + 0.1, turn))
    spoken_s = 0.5 * 40
    for n in range(40):
        stream = feed(live, *(audio(at_once + n / 2, turn) for turn in range(at_once)))
    assert live.totals.turns["interrupted"] == at_once - 1
    assert stream.turn == at_once - 1
    drift_ms = live.drift_ms(stream, T0 + at_once + spoken_s)
    assert drift_ms is not None
    assert drift_ms < -0.8 * 1000 * RECENT_S
