"""The stream table, where the server's kernel says what reached the listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.events import T0, asked, audio, ended, feed, outcomes, table, video
from omniwatch import events as ev
from omniwatch.core.stream import UNSURE_S, Stream

RTT_MS = 100.0


def asks_kernel(t: float, turn: ev.Turn = 1) -> ev.TurnStart:
    return ev.TurnStart(t=T0 + t, stream="a", turn=turn, ear="kernel")


def arrived(t: float, ms: float, turn: ev.Turn = 1, ago_ms: float = 0.0, **fields: object) -> ev.Arrived:
    """What the kernel says at t: so much had arrived, the last of it `ago_ms` before."""
    head = {"rtt_ms": RTT_MS, "waiting": 1} | fields
    return ev.Arrived(t=T0 + t, stream="a", turn=turn, ms=ms, ago_ms=ago_ms, **head)


def still(t0: float, t1: float, ms: float) -> Iterator[ev.Arrived]:
    """The kernel's word once a second while nothing arrives."""
    return (arrived(t0 + n, ms) for n in range(int(t1 - t0) + 1))


def test_a_listener_starves_when_speech_that_was_sent_does_not_arrive():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0), arrived(0.7, 1000, ago_ms=100))
    stream = feed(
        live, audio(1.0, turn=1, dur_ms=9000.0), arrived(2.2, 1000), arrived(2.5, 10_000, ago_ms=200)
    )
    assert live.totals.audio_underrun_seconds == pytest.approx(2.3 - 1.68)
    assert live.drift_ms(stream, T0 + 3) == pytest.approx(-620)
    assert stream.ear == "kernel"


def test_the_curves_are_of_a_round_trip_ago_while_speech_is_under_way():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0), arrived(0.7, 1000, ago_ms=100))
    stream = feed(live, audio(1.9, turn=1, dur_ms=2000.0))
    lag_s = RTT_MS / 1000 + UNSURE_S
    assert stream.known_until(T0 + 2) == pytest.approx(T0 + 2 - lag_s)
    assert live.drift_ms(stream, T0 + 2) == pytest.approx(-1000 * (2 - lag_s - 1.68))
    feed(live, arrived(2.05, 3000, ago_ms=50))
    assert stream.known_until(T0 + 2.1) == T0 + 2.1
    assert live.drift_ms(stream, T0 + 2.1) == pytest.approx(-320)


@pytest.mark.parametrize("ahead_ms", [0.0, 200.0])
def test_a_server_that_speaks_in_real_time_starves_nobody_on_a_long_path(ahead_ms):
    live, shown = table(), []
    feed(live, video(0, 0), asks_kernel(0))
    for n in range(200):
        t = 0.5 + n * 0.08
        feed(live, audio(t, turn=1, dur_ms=80.0 + (ahead_ms if n == 0 else 0)))
        stream = feed(
            live, arrived(t + 0.03, ms=max(0, n - 2) * 80.0 + (ahead_ms if n > 2 else 0), rtt_ms=200)
        )
        if n % 6 == 0:
            feed(live, video(t + 0.03, t * 1000))
        shown.append(abs(live.drift_ms(stream, T0 + t + 0.07) or 0.0))
    assert max(shown) < 60
    assert live.totals.audio_underrun_seconds < 0.06


def test_no_jump_when_the_kernel_falls_silent_and_speaks_again():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=5000.0), arrived(0.7, 5000, ago_ms=100))
    feed(live, audio(1.0, turn=1, dur_ms=20_000.0), arrived(1.5, 5000))
    stream = feed(live, video(4.4, 0))
    assert stream.ear == "kernel"
    feed(live, video(4.6, 0))
    assert (stream.ear, live.state.ear_up) == ("sent", False)
    assert live.drift_ms(stream, T0 + 8) == 0
    feed(live, audio(8.5, turn=1, dur_ms=3000.0), arrived(9, 20_000), audio(9.5, turn=1, dur_ms=1000.0))
    assert (stream.ear, live.state.ear_up) == ("kernel", True)
    assert live.drift_ms(stream, T0 + 10) == 0
    assert live.totals.audio_underrun_seconds == 0


def test_silence_of_the_kernel_is_seen_without_an_event():
    live = table()
    stream = feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=5000.0))
    live.advance(T0 + 3.4)
    assert stream.ear == "kernel"
    live.advance(T0 + 30)
    assert stream.player.start_t == pytest.approx(T0 + 3.58), "as of three seconds, whenever it is looked at"


def test_where_the_ear_gives_up_what_is_under_way_counts_as_heard():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0), arrived(0.7, 1000, ago_ms=100))
    feed(live, audio(1.0, turn=1, dur_ms=9000.0))
    stream = feed(live, arrived(2.0, 1000, ear="sent"), audio(2.5, turn=1, dur_ms=1000.0))
    assert live.totals.audio_underrun_seconds == pytest.approx(0.32)
    assert (stream.ear, stream.player.under_way, live.state.ear_up) == ("sent", False, False)
    assert live.drift_ms(stream, T0 + 5) == pytest.approx(-320)


def away(live, after_s: float = 12.0) -> Stream:
    feed(live, video(0, 0), asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0), arrived(0.7, 1000, ago_ms=100))
    feed(live, audio(1.0, turn=1, dur_ms=60_000.0))
    for word in still(1.5, after_s, 1000):
        stream = feed(live, word)
    return stream


def test_a_listener_who_is_away_has_no_series_until_something_arrives_and_then_the_gap_counts():
    live = table()
    stream = away(live)
    assert live.drift_ms(stream, T0 + 10.5) < -8000
    assert live.rtt_ms(stream, T0 + 10.5) == pytest.approx(650)
    assert not live.is_away(stream, T0 + 10.9)
    assert live.is_away(stream, T0 + 11.1)
    curves = (live.drift_ms, live.cumulative_ms, live.rtt_ms)
    assert [curve(stream, T0 + 12) for curve in curves] == [None] * 3
    assert live.totals.audio_underrun_seconds == 0
    assert stream.silent_s(T0 + 70) > 0, "a matter of what was handed over"
    feed(live, *still(13, 19, 1000), arrived(20, 61_000))
    assert live.totals.audio_underrun_seconds == pytest.approx(20 - 1.68)
    assert live.drift_ms(stream, T0 + 20.1) is not None


def test_a_listener_who_comes_back_on_another_connection_is_away_no_more():
    live = table()
    stream = away(live)
    feed(live, ev.StreamStart(t=T0 + 12.6, stream="a", peer="10.0.0.7:2"))
    assert not live.is_away(stream, T0 + 13)
    stream.player.grew_t = T0
    feed(live, ev.Resume(t=T0 + 13, stream="a", last_good_id=3, result="hit"))
    assert not live.is_away(stream, T0 + 13)


def test_a_listener_who_left_for_good_has_nothing_counted_against_him():
    live = table()
    stream = away(live)
    feed(live, video(12.2, 0))
    assert stream.worst_ms > 5000
    feed(live, ended(12.5), ev.StreamEnd(t=T0 + 12.6, stream="a", reason="disconnect"))
    live.advance(T0 + 12.7)
    assert live.streams == []
    assert live.totals.turn_drift_worst.sum == 0
    assert live.totals.audio_underrun_seconds == 0


def test_a_listener_who_reads_slowly_is_not_away():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=9000.0))
    stream = feed(live, *(arrived(1 + n, 0, waiting=100_000 - n) for n in range(15)))
    assert not live.is_away(stream, T0 + 15.5)


def test_the_round_trip_is_from_the_question_to_the_acknowledgement():
    live = table()
    stream = feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0))
    assert live.rtt_ms(stream, T0 + 1) is None, "speech that has not arrived is no answer"
    feed(live, arrived(1.2, 1000, ago_ms=150, rtt_ms=80))
    assert live.rtt_ms(stream, T0 + 1.2) == pytest.approx(1200 - 150 + 40)
    assert live.totals.token_rtt["server"].sum == pytest.approx(1.09)
    feed(live, arrived(1.3, 1000, rtt_ms=300))
    assert live.rtt_ms(stream, T0 + 1.3) == pytest.approx(1090), "nothing is added"


def test_of_a_path_with_a_queue_the_least_round_trip_counts():
    live = table()
    feed(live, asks_kernel(0), audio(0.1, turn=1), arrived(0.2, 80, rtt_ms=60), ended(0.2))
    stream = feed(
        live, asks_kernel(5, 2), audio(5.1, turn=2), arrived(5.6, 80, turn=2, ago_ms=330, rtt_ms=360)
    )
    assert live.rtt_ms(stream, T0 + 5.7) == pytest.approx(300)


def test_the_least_round_trip_is_the_kernels_where_it_is_stated():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0))
    stream = feed(live, arrived(1.2, 1000, ago_ms=150, rtt_ms=180, least_rtt_ms=100.0))
    assert live.rtt_ms(stream, T0 + 1.2) == pytest.approx(1200 - 150 + 50)


def test_answers_count_in_the_order_of_arrival():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0))
    stream = feed(live, asks_kernel(2, 2), audio(2.2, turn=2, dur_ms=1000.0))
    feed(live, arrived(2.5, 1000, turn=2))
    assert live.rtt_ms(stream, T0 + 2.5) == pytest.approx(550)
    feed(live, arrived(3.0, 1000, turn=1))
    assert sum(live.totals.token_rtt["server"].counts) == 2
    assert stream.answers.turn == 1
    assert outcomes(live) == {"interrupted": 1}


def test_by_what_is_sent_the_last_round_trip_of_the_path_is_added():
    live = table()
    feed(live, ev.StreamStart(t=T0, stream="a", peer="10.0.0.7:1"))
    feed(live, asks_kernel(0), audio(0.1, turn=1), arrived(0.2, 80, rtt_ms=70), ended(0.2))
    stream = feed(live, asked(5, 2), audio(5.4, turn=2), ended(5.5, 2))
    assert live.rtt_ms(stream, T0 + 5.4) == pytest.approx(470)
    feed(live, ev.StreamStart(t=T0 + 6, stream="a", peer="10.0.0.7:2"), asked(7, 3), audio(7.4, turn=3))
    assert live.rtt_ms(stream, T0 + 7.4) == pytest.approx(400), "another connection, another path"


def test_an_answer_that_the_ear_never_heard_of_counts_as_sent():
    live = table()
    stream = feed(live, asks_kernel(0), audio(0.5, turn=1), arrived(1.5, 0, ear="sent"))
    assert live.rtt_ms(stream, T0 + 1.5) == pytest.approx(600)
    assert stream.pending == []


def test_a_client_that_says_when_it_starves_is_believed_instead_of_the_model():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=30_000.0), arrived(0.7, 30_000, ago_ms=100))
    for n in range(4):
        feed(live, ev.Played(t=T0 + 1.7 + n, stream="a", turn=1, played_ms=1000 + 850 * n, source="player"))
        if n:
            feed(live, ev.Underrun(t=T0 + 1.7 + n, stream="a", turn=1, ms=150, source="player"))
    stream = live.streams[0]
    assert stream.ear == "client"
    assert live.totals.audio_underrun_seconds == pytest.approx(0.45)
    assert live.drift_ms(stream, T0 + 4.8) == pytest.approx(-450)


def test_what_a_client_had_no_time_to_report_is_counted_when_its_turn_is_over():
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=2000.0), arrived(0.7, 2000, ago_ms=100))
    feed(live, ev.Underrun(t=T0 + 1.7, stream="a", turn=1, ms=0, source="player"))
    feed(live, ev.Played(t=T0 + 1.7, stream="a", turn=1, played_ms=1000, source="player"))
    feed(live, audio(2.0, turn=1, dur_ms=4000.0), *still(2.5, 4.5, 2000), arrived(5.1, 6000, ago_ms=400))
    assert live.totals.audio_underrun_seconds == 0, "the client says so itself"
    feed(live, ended(5.2), asks_kernel(7, 2), audio(7.2, turn=2))
    assert live.totals.audio_underrun_seconds == pytest.approx(2.0, abs=0.05)


def test_the_clocks_step_leaves_what_arrived_before_it_out():
    live = table()
    feed(live, asks_kernel(1000), audio(1000.5, turn=1, dur_ms=9000.0), arrived(1000.7, 9000, ago_ms=100))
    stream = feed(live, audio(10, turn=1, dur_ms=2000.0), arrived(10.2, 11_000, ago_ms=100))
    assert live.drift_ms(stream, T0 + 11) == 0
    assert stream.player.end_t == pytest.approx(T0 + 10.1 + 0.08 + 2)
    assert live.totals.audio_underrun_seconds == 0


def spoken_over(congestion: str | None, retrans: int, ms: float = 4000) -> Stream:
    live = table()
    feed(live, asks_kernel(0), audio(0.5, turn=1, dur_ms=ms))
    first = arrived(0.7, ms / 2, congestion=congestion, retrans=retrans // 2)
    return feed(live, first, arrived(1.7, ms, retrans=retrans - retrans // 2))


@pytest.mark.parametrize(
    ("congestion", "retrans", "ms", "is_held_back"),
    [
        ("cubic", 5, 4000, True),
        ("cubic", 4, 4000, False),
        ("reno", 20, 20_000, True),
        ("reno", 19, 20_000, False),
        ("bbr", 50, 4000, False),
        (None, 50, 4000, False),
        ("one of tomorrow", 50, 4000, False),
    ],
)
def test_a_listener_is_held_back_where_loss_is_taken_for_a_full_path(congestion, retrans, ms, is_held_back):
    stream = spoken_over(congestion, retrans, ms)
    assert (stream.congestion, stream.resent, stream.is_held_back) == (congestion, retrans, is_held_back)


def test_the_next_turn_counts_anew_and_another_connection_has_a_congestion_control_of_its_own():
    live = table()
    start = ev.StreamStart(t=T0, stream="a", peer="198.51.100.7:40000")
    feed(live, start, asks_kernel(0), audio(0.5, turn=1, dur_ms=1000.0))
    stream = feed(live, arrived(0.7, 1000, congestion="cubic", retrans=9), ended(1.0, 1))
    assert stream.is_held_back
    feed(live, asks_kernel(3, 2), audio(3.5, turn=2))
    assert (stream.congestion, stream.resent) == ("cubic", 0)
    feed(live, ev.StreamStart(t=T0 + 4, stream="a", peer="198.51.100.7:40001"))
    assert stream.congestion is None
