"""The player model, on paper examples worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.core.drift import GAPS_KEPT, Player

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
    assert player.starved_s(11.0) == pytest.approx(0.68)
    assert player.starved_s(12.0) == pytest.approx(0.68), "what is lost is not caught up"


def test_sending_faster_than_real_time_does_not_move_it():
    player = played((10.0, 4000), (10.1, 4000))
    assert player.starved_s(15.0) == pytest.approx(0, abs=1e-9)


def test_underrun_is_known_for_moments_before_it_was_over():
    player = played((10.0, 240), (11.0, 2000))
    assert [player.starved_s(t) for t in (10.2, 10.32, 10.5, 11.0, 11.5)] == pytest.approx(
        [0, 0, 0.18, 0.68, 0.68]
    )


def test_underrun_is_recent_for_10_s():
    player = played((10.0, 240), (11.0, 30_000))
    assert player.recently_starved_s(10.5) == pytest.approx(0.18), "not over yet"
    assert player.recently_starved_s(20.3) == pytest.approx(0.68)
    assert player.recently_starved_s(20.72) == pytest.approx(0.28)
    assert player.recently_starved_s(21.1) == 0
    assert player.recently_starved_s(60.0) == pytest.approx(10.0)


def test_of_many_underruns_the_oldest_are_taken_together():
    player = played(*((10 + n / 10, 50) for n in range(3 * GAPS_KEPT)))
    last_t = 10 + (3 * GAPS_KEPT - 1) / 10
    assert len(player.gaps) == GAPS_KEPT
    assert player.starved_s(last_t) == pytest.approx(3 * GAPS_KEPT * 0.05 - 0.13)
    assert player.recently_starved_s(last_t) == pytest.approx(5.0, abs=0.1)


def test_the_clients_first_report_stands_where_the_model_does():
    player = played((10.0, 240), (11.0, 5000))
    player.heard(12.0, 1000)
    assert player.starved_s(12.0) == pytest.approx(0.68)
    assert player.position_ms(12.0) == pytest.approx(1000)
    assert player.position_ms(12.5) == pytest.approx(1500)
    assert player.position_ms(20.0) == pytest.approx(5240)


def test_the_clients_playhead_replaces_the_models_once_two_reports_agree():
    player = played((10.0, 9000))
    player.heard(11.0, 900)
    player.heard(12.0, 1600)
    assert player.starved_s(12.0) == pytest.approx(0), "it may have been held up on its way"
    player.heard(13.0, 2600)
    assert player.starved_s(13.0) == pytest.approx(0.3)
    assert player.recently_starved_s(13.0) == pytest.approx(0.3)
    player.heard(14.0, 3900)
    assert player.starved_s(14.0) == pytest.approx(0), "caught up"
    assert player.recently_starved_s(14.0) == 0


def test_a_playhead_before_the_reckoned_start_moves_the_start():
    player = played((10.0, 2000))
    player.heard(10.05, 30)
    assert player.start_t == pytest.approx(10.02)
    assert player.starved_s(10.05) == pytest.approx(0, abs=1e-9)


def test_an_underrun_that_the_client_states_replaces_the_models_since_its_last_report():
    player = played((10.0, 240), (11.0, 5000))
    player.starve(11.5, 0.5)
    assert player.starved_s(11.5) == pytest.approx(0.5)
    player.starve(12.5, 0.1)
    assert player.starved_s(12.5) == pytest.approx(0.6)
    assert player.recently_starved_s(12.5) == pytest.approx(0.6)


@pytest.mark.parametrize("last_is_underrun", [True, False])
def test_an_underrun_and_a_playhead_of_one_report_count_once(last_is_underrun):
    player = played((10.0, 9000))
    player.heard(11.0, 900)
    said = [lambda: player.heard(12.0, 1600), lambda: player.starve(12.0, 0.3)]
    for say in said if last_is_underrun else reversed(said):
        say()
    assert player.starved_s(12.0) == pytest.approx(0.3)
    player.heard(13.0, 2600)
    assert player.starved_s(13.0) == pytest.approx(0.3)


@pytest.mark.parametrize("t", [11.5, 10.9])
def test_realignment_takes_its_shift_away(t):
    """Once while the underrun is over, once while it is not."""
    player = played((10.0, 240), *([(11.0, 2000)] if t > 11 else []))
    starved_s = player.starved_s(t)
    player.realign(t, -1000 * starved_s)
    assert player.starved_s(t) == pytest.approx(0, abs=1e-9)
    assert player.recently_starved_s(t) == pytest.approx(0, abs=1e-9)
    if t < 11:
        assert player.send(11.0, 2000, BUFFER_S) == pytest.approx(0.68), "the underrun is counted whole"
        assert player.starved_s(11.5) == player.recently_starved_s(11.5) == pytest.approx(0.1)


def heard_by_kernel(*chunks: tuple[float, float]) -> Player:
    player = Player(kernel=True)
    for t, dur_ms in chunks:
        player.send(t, dur_ms, BUFFER_S)
    return player


def test_by_the_kernel_a_listener_hears_what_arrived_when_it_arrived():
    player = heard_by_kernel((10.0, 240), (10.1, 2000))
    assert (player.start_t, player.under_way) == (-1, True)
    assert player.arrive(10.4, 0.1, 240, 900, BUFFER_S) == 0
    assert player.start_t == pytest.approx(10.38)
    assert player.position_ms(10.48) == pytest.approx(100)
    assert player.arrive(11.3, 0.3, 2240, 0, BUFFER_S) == pytest.approx(0.38)
    assert not player.under_way
    assert player.starved_s(10.8) == pytest.approx(0.18), "as of before it arrived"
    assert player.silent_from() == pytest.approx(10.08 + 2.24)


def test_a_change_of_ear_makes_no_jump():
    player = played((10.0, 1000))
    assert player.arrive(10.3, 0.1, 400, 50, BUFFER_S) == 0
    assert (player.kernel, player.under_way) == (True, False)
    assert player.starved_s(10.5) == pytest.approx(0, abs=1e-9)
    player.send(10.6, 1000, BUFFER_S)
    assert player.starved_s(11.5) == pytest.approx(0.42)
    assert player.go_by_sent(11.5, BUFFER_S) == pytest.approx(0.42)
    assert player.starved_s(12.0) == pytest.approx(0.42)
    assert player.position_ms(13.0) == pytest.approx(2000)


def test_a_turn_that_the_kernel_knows_more_of_than_was_read_goes_on_where_it_is():
    player = played((10.0, 1000))
    player.arrive(10.3, 0.1, 9000, 0, BUFFER_S)
    assert player.starved_s(10.5) == pytest.approx(0, abs=1e-9)
    assert player.end_t == pytest.approx(11.08)


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
