"""The stream table: how streams come, go, go stale and share the slots."""

from __future__ import annotations

import pytest

from helpers.events import T0, asked, audio, ended, feed, outcomes, table, video
from omniwatch import events as ev
from omniwatch.core.streams import TRACKED_PER_SLOT


def test_a_stream_that_ended_leaves_when_what_it_was_sent_has_been_played():
    live = table()
    feed(
        live,
        asked(0),
        audio(0, turn=1, dur_ms=2000.0),
        ended(0.1),
        ev.StreamEnd(t=T0 + 0.2, stream="a", reason="bye"),
    )
    live.advance(T0 + 1)
    assert [s.id for s in live.streams] == ["a"]
    live.advance(T0 + 2.1)
    assert live.streams == []


def test_a_stream_that_says_nothing_goes_stale():
    live = table(stale_after_s=60)
    feed(live, asked(0))
    live.advance(T0 + 60)
    assert len(live.streams) == 1
    live.advance(T0 + 60.1)
    assert live.streams == []
    assert outcomes(live) == {"abandoned": 1}


def test_a_silence_too_long_ends_a_stream_whether_or_not_anybody_looked():
    live = table(stale_after_s=60)
    feed(live, audio(0, pts_ms=0.0, video_pts_ms=500.0))
    assert feed(live, asked(100)).drift_ms is None


def test_slots_are_reused_lowest_first_and_given_to_those_who_wait():
    live = table(max_streams=2)
    feed(live, *(ev.StreamStart(t=T0 + i, stream=name) for i, name in enumerate("abcd")))
    assert {s.id: s.slot for s in live.streams} == {"a": 0, "b": 1, "c": -1, "d": -1}
    feed(live, ev.StreamEnd(t=T0 + 5, stream="a", reason="bye"))
    live.advance(T0 + 5)
    assert {s.id: s.slot for s in live.streams} == {"c": 0, "b": 1, "d": -1}


def test_who_speaks_comes_before_who_is_idle():
    live = table(max_streams=2)
    feed(live, *(ev.StreamStart(t=T0 + i, stream=name) for i, name in enumerate("ab")))
    late = feed(live, asked(3, stream="c"), audio(8, turn=1, stream="c"))
    assert (late.slot, late.answers.rtt_ms) == (0, pytest.approx(5000))
    feed(live, asked(9, stream="b"), asked(10, stream="d"))
    assert {s.id: s.slot for s in live.streams} == {"c": 0, "b": 1, "a": -1, "d": -1}


def test_a_slot_that_is_left_goes_to_who_speaks():
    live = table(max_streams=1)
    feed(live, asked(0), ev.StreamStart(t=T0 + 1, stream="idle"), asked(2, stream="b"))
    feed(live, ev.StreamEnd(t=T0 + 5, stream="a", reason="bye"))
    live.advance(T0 + 5)
    assert {s.id: s.slot for s in live.streams} == {"b": 0, "idle": -1}


def test_the_number_of_streams_is_bounded_and_what_was_forgotten_counted():
    live = table(max_streams=2)
    for i in range(2 * TRACKED_PER_SLOT + 5):
        feed(live, ev.StreamStart(t=T0 + i * 0.001, stream=f"s{i}"))
    assert len(live.state.streams) == 2 * TRACKED_PER_SLOT
    assert live.totals.streams_dropped == 5


def test_a_clock_set_back_keeps_the_stream_and_starts_a_new_player():
    live = table()
    feed(live, asked(1000), audio(1000.5, turn=1, dur_ms=1000.0))
    stream = feed(live, audio(10, turn=1, dur_ms=1000.0))
    assert live.drift_ms(stream, T0 + 10.5) == pytest.approx(0, abs=1e-3)
    assert live.totals.audio_underrun_seconds == 0
    live.advance(T0 + 10.6)
    assert len(live.streams) == 1


def test_a_turn_whose_first_word_after_the_clock_was_set_back_is_a_picture_is_not_silent():
    live = table()
    feed(live, asked(1000), audio(1000.5, turn=1))
    stream = feed(live, video(10, 0.0))
    assert stream.silent_s(T0 + 10.5) == pytest.approx(0.5)
