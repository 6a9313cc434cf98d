"""The player model, on paper examples worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.core.drift import Picture, Player

BUFFER_S = 0.08


def played(*chunks: tuple[float, float]) -> Player:
    player = Player()
    for t, dur_ms in chunks:
        player.send(t, dur_ms, BUFFER_S)
    return player


def test_playback_starts_after_the_buffer_and_stands_still_when_nothing_is_left():
    player = played((10.0, 240))
    assert player.start_t == pytest.approx(10.08)
    assert player.position_ms(10.0) == 0
    assert player.position_ms(10.18) == pytest.approx(100)
    assert player.position_ms(10.32) == pytest.approx(240)
    assert player.position_ms(11.0) == pytest.approx(240)


def test_a_late_chunk_is_an_underrun_of_its_lateness():
    player = played((10.0, 240))
    assert player.send(11.0, 2000, BUFFER_S) == pytest.approx(0.68)
    assert player.lag_ms(11.0) == pytest.approx(-680)
    assert player.lag_ms(12.0) == pytest.approx(-680), "what is lost is not caught up"


def test_sending_faster_than_real_time_does_not_move_it():
    player = played((10.0, 4000), (10.1, 4000))
    assert player.lag_ms(15.0) == pytest.approx(0, abs=1e-6)


def test_the_picture_at_playback_start_is_the_last_frame_and_the_time_since():
    player = played((10.0, 1000))
    player.pin(Picture(pts_ms=500, t=10.05, seen=True), 580, 10.13)
    assert player.start_pts_ms == pytest.approx(530)
    assert player.drift_ms(10.13, 580) == pytest.approx(0, abs=1e-6)


def test_without_a_frame_before_the_first_one_after_is_carried_back():
    player = played((10.0, 1000))
    player.pin(Picture(), 580, 10.13)
    assert player.start_pts_ms == pytest.approx(530)


def test_a_fast_camera_clock_leaves_the_voice_behind():
    player = played((10.0, 10_000))
    player.pin(Picture(), 0, 10.08)
    assert player.drift_ms(11.08, 1010) == pytest.approx(-10)


def test_the_clients_playhead_replaces_the_reckoned_one():
    player = played((10.0, 2000))
    player.heard(11.0, 700)
    assert player.position_ms(11.0) == pytest.approx(700)
    assert player.position_ms(11.5) == pytest.approx(1200)
    assert player.position_ms(20.0) == pytest.approx(2000)


def test_a_playhead_before_the_reckoned_start_moves_the_start():
    player = played((10.0, 2000))
    player.heard(10.05, 30)
    assert player.start_t == pytest.approx(10.02)
    assert player.lag_ms(10.05) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("pinned", [True, False])
def test_realignment_takes_its_shift_away(pinned):
    player = played((10.0, 240), (11.0, 2000))
    if pinned:
        player.pin(Picture(), 0, 10.08)
    drift = (lambda t: player.drift_ms(t, (t - 10.08) * 1000)) if pinned else player.lag_ms
    before = drift(11.5)
    player.realign(-680)
    assert before == pytest.approx(-680)
    assert drift(11.5) == pytest.approx(0, abs=1e-6)


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.floats(1, 3000)),
        min_size=1,
        max_size=30,
    )
)
def test_position_never_falls_never_runs_faster_than_time_and_reaches_all_that_was_sent(steps):
    """The closed form (`end_t`) against playing chunk by chunk as the definition says."""
    player, t, starts = Player(), 100.0, []
    free = None
    for wait, dur_ms in steps:
        t += wait
        player.send(t, dur_ms, BUFFER_S)
        free = t + BUFFER_S if free is None else max(t, free)
        starts.append((free, dur_ms))
        free += dur_ms / 1000
        for probe in (t, t + 0.01):
            heard = sum(min(dur, max(0.0, (probe - p) * 1000)) for p, dur in starts)
            assert player.position_ms(probe) == pytest.approx(heard, abs=1e-3)
    assert player.position_ms(free + 1) == pytest.approx(sum(dur for _, dur in steps))
