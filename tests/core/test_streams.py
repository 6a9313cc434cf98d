"""The stream table: turns, slots, both definitions of drift, and what is counted."""

from __future__ import annotations

import msgspec
import pytest

from helpers.events import T0, asked, audio, ended, feed, outcomes, table, video
from helpers.wire import EXPECTED, TurnNumbers, wire_events
from omniwatch import events as ev
from omniwatch.core.state import State
from omniwatch.core.streams import StreamTable
from omniwatch.core.totals import OUTCOMES
from omniwatch.settings import Alerts, Settings


@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_of_the_real_server_give_their_numbers(name):
    measured: list[TurnNumbers] = []
    live = table()
    drifts: list[float] = []
    sampled, audio_s, underrun_s, rtt = 0, 0.0, 0.0, 0.0
    turn: ev.Turn | None = None

    def close_turn() -> None:
        totals = live.totals
        measured.append(
            TurnNumbers(
                rtt,
                (totals.audio_seconds - audio_s) * 1000,
                (totals.audio_underrun_seconds - underrun_s) * 1000,
                drifts[-1],
                min(drifts),
                max(drifts),
            )
        )

    for event in wire_events(name):
        if isinstance(event, ev.Audio) and drifts and event.turn != turn:
            close_turn()
            drifts, audio_s, underrun_s = [], live.totals.audio_seconds, live.totals.audio_underrun_seconds
        stream = feed(live, event)
        rtt, turn = stream.answers.rtt_ms or 0.0, stream.turn
        if sum(live.totals.codec_drift_abs.counts) > sampled:
            sampled += 1
            drifts.append(stream.drift_ms)
    close_turn()
    for got, expected in zip(measured, EXPECTED[name], strict=True):
        assert got[:3] == pytest.approx(expected[:3], abs=0.051)
        assert got[3:] == pytest.approx(expected[3:], abs=5), "the jitter of single frames is no drift"


def test_stated_drift_is_the_difference_of_the_two_pts():
    stream = feed(table(), audio(0, pts_ms=1000.0, video_pts_ms=1061.5))
    assert stream.drift_ms == -61.5


def test_stated_drift_goes_on_from_turn_to_turn_and_is_kept_for_9_s():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, pts_ms=0.0, video_pts_ms=100.0), ended(1))
    stream = feed(live, asked(5, 2), audio(5.5, turn=2, pts_ms=80.0, video_pts_ms=200.0))
    assert stream.drift_ms == -120
    assert live.drift_ms(stream, T0 + 14.4) == -120
    assert live.drift_ms(stream, T0 + 14.6) is None


def test_without_video_a_starving_player_lags_from_scrape_to_scrape():
    live = table()
    stream = feed(live, asked(0), audio(0.3, turn=1, dur_ms=240.0))
    assert live.drift_ms(stream, T0 + 0.5) == pytest.approx(0, abs=1e-3)
    assert live.drift_ms(stream, T0 + 1.62) == pytest.approx(-1000, abs=1e-3)


def test_without_video_one_stutter_is_over_after_10_s():
    live = table()
    stream = feed(live, asked(0), audio(0, turn=1, dur_ms=920.0), audio(1.2, turn=1, dur_ms=60_000.0))
    assert live.drift_ms(stream, T0 + 11.0) == pytest.approx(-200, abs=1e-3)
    assert live.drift_ms(stream, T0 + 11.1) == pytest.approx(-100, abs=1e-3)
    assert live.drift_ms(stream, T0 + 11.3) == 0


def test_with_video_it_lasts_until_the_turn_is_over():
    live = table()
    feed(live, video(0, 0), asked(0), audio(0, turn=1, dur_ms=920.0), audio(1.2, turn=1, dur_ms=60_000.0))
    stream = feed(live, *(video(n / 2, n * 500) for n in range(3, 60)))
    assert live.drift_ms(stream, T0 + 29.5) == pytest.approx(-200, abs=1e-3)
    assert live.drift_ms(stream, T0 + 40) == 0, "the camera is off: nothing to be out of step with"


def test_a_fast_camera_leaves_the_voice_behind():
    live = table()
    feed(live, *(video(n / 2, n * 500.5) for n in range(80)))
    feed(live, asked(40), audio(40, turn=1, dur_ms=60_000.0))
    stream = feed(live, *(video(n / 2, n * 500.5) for n in range(80, 160)))
    assert stream.drift_ms == pytest.approx(-(79.5 - 40.08), abs=1)


def test_frames_that_were_held_up_on_their_way_are_no_drift():
    live = table()
    feed(live, video(0, 0), asked(0), audio(0, turn=1, dur_ms=60_000.0))
    stream = feed(live, *(video(max(n / 2, 14) if 20 < n < 28 else n / 2, n * 500) for n in range(1, 60)))
    assert stream.worst_ms == 0


def test_after_turn_end_the_rest_is_played_and_silence_is_no_drift():
    live = table()
    stream = feed(live, asked(0), audio(0.3, turn=1, dur_ms=2000.0), ended(0.4))
    assert stream.speaking
    live.advance(T0 + 2.4)
    assert not stream.speaking
    assert live.drift_ms(stream, T0 + 2.4) is None, "nobody hears it any more"
    assert live.totals.audio_underrun_seconds == 0


def test_video_that_falls_after_the_playback_does_not_sample_it():
    live = table()
    stream = feed(
        live, video(0, 0), asked(0), audio(0.1, turn=1, dur_ms=1000.0), ended(0.2), video(1.0, 1000)
    )
    assert stream.drift_ms == pytest.approx(0, abs=1e-3)
    feed(live, video(3.0, 3000))
    assert stream.drift_ms == pytest.approx(0, abs=1e-3)


def test_a_new_turns_first_audio_cuts_the_old_one_off_and_its_tail_is_not_played():
    live = table()
    feed(live, asked(0), audio(0.3, turn=1, dur_ms=5000.0), asked(1, 2))
    stream = feed(live, audio(1.5, turn=2, dur_ms=1000.0), audio(1.6, turn=1, dur_ms=9000.0))
    assert outcomes(live) == {"interrupted": 1}
    assert stream.player.sent_ms == 1000
    feed(live, ended(1.7, 1, "aborted"), ended(2, 2))
    assert outcomes(live) == {"interrupted": 1, "completed": 1}


def test_drift_of_a_turn_starts_at_zero_and_its_worst_is_observed_once():
    live = table()
    feed(live, asked(0), audio(0, turn=1, dur_ms=200.0), audio(1, turn=1, dur_ms=200.0), ended(1.1))
    stream = feed(live, asked(5, 2), audio(5, turn=2, dur_ms=200.0))
    assert stream.drift_ms == 0
    assert stream.worst_ms == 0
    assert live.totals.turn_drift_worst.sum == pytest.approx(0.72)
    assert sum(live.totals.turn_drift_worst.counts) == 1


def test_the_clients_playhead_replaces_the_model():
    live = table()
    stream = feed(live, asked(0), audio(0, turn=1, dur_ms=9000.0))
    feed(live, *(ev.Played(t=T0 + 1.08 + n, stream="a", played_ms=900 + 1000 * n) for n in range(2)))
    assert live.drift_ms(stream, T0 + 2.08) == 0, "its buffer is longer than the model's"
    feed(live, *(ev.Played(t=T0 + 3.08 + n, stream="a", played_ms=2600 + 1000 * n) for n in range(2)))
    assert live.drift_ms(stream, T0 + 4.58) == pytest.approx(-300, abs=1e-3)
    assert stream.ear == "client"


@pytest.mark.parametrize("source", ["framework", "model"])
def test_a_guess_of_the_client_does_not_replace_the_model(source):
    live = table()
    stream = feed(live, asked(0), audio(0, turn=1, dur_ms=9000.0))
    for n in range(3):
        feed(live, ev.Played(t=T0 + 1 + n, stream="a", played_ms=100 * n, source=source))
    feed(live, ev.Underrun(t=T0 + 4, stream="a", ms=700, source=source))
    assert live.drift_ms(stream, T0 + 4.5) == 0
    assert (stream.ear, live.totals.audio_underrun_seconds) == ("sent", 0)


def test_a_realignment_moves_the_curve_but_not_the_cumulative_one():
    live = table()
    feed(live, asked(0), audio(0, turn=1, dur_ms=200.0), audio(1.28, turn=1, dur_ms=9000.0))
    stream = feed(live, ev.Realign(t=T0 + 2, stream="a", shift_ms=-1000))
    assert live.drift_ms(stream, T0 + 2.5) == pytest.approx(0, abs=1e-3)
    assert live.cumulative_ms(stream, T0 + 2.5) == pytest.approx(-1000, abs=1e-3)
    assert live.totals.codec_realign == 1


def test_between_a_realignment_and_the_frame_that_shows_it_the_cumulative_curve_stands_still():
    live = table()
    stream = feed(live, asked(0), audio(1, turn=1, pts_ms=500, video_pts_ms=1000))
    before = live.cumulative_ms(stream, T0 + 1)
    feed(live, ev.Realign(t=T0 + 2, stream="a", shift_ms=-500))
    assert live.cumulative_ms(stream, T0 + 2) == before == -500
    feed(live, audio(3, turn=1, pts_ms=3000, video_pts_ms=3000))
    assert (stream.drift_ms, live.cumulative_ms(stream, T0 + 3)) == (0, -500)


def test_rtt_is_seen_from_the_server_until_a_client_tells_and_stays_until_the_next_turn_is_answered():
    live = table()
    stream = feed(live, asked(0), audio(0.9, turn=1))
    assert (stream.answers.rtt_ms, stream.answers.vantage) == (pytest.approx(900), "server")
    feed(live, ended(1), asked(5, 2))
    assert stream.answers.rtt_ms == pytest.approx(900)
    feed(live, audio(5.2, turn=2), ev.Rtt(t=T0 + 5.3, stream="a", turn=2, rtt_ms=312))
    assert (stream.answers.rtt_ms, stream.answers.vantage) == (312, "client")
    feed(live, ended(6, 2), asked(7, 3), audio(9, turn=3))
    assert (stream.answers.rtt_ms, stream.answers.vantage) == (312, "client"), (
        "the client's word is waited for"
    )
    assert [sum(live.totals.token_rtt[v].counts) for v in ("client", "server")] == [1, 3]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([asked(0), audio(1, turn=1), ended(2)], {"completed": 1}),
        ([asked(0), audio(1, turn=1), ended(2, reason="stop")], {"completed": 1}),
        ([asked(0), audio(1, turn=1), ended(2, reason="disconnect")], {"aborted": 1}),
        ([asked(0), audio(1, turn=1), ended(2, reason="martian")], {"other": 1}),
        ([asked(0), ended(2)], {"no_audio": 1}),
        ([asked(0), ended(2, reason="error")], {"failed": 1}),
        ([asked(0), ended(2, reason="refused")], {"refused": 1}),
        ([asked(0), asked(1, 2), audio(2, turn=2), ended(3, 2)], {"abandoned": 1, "completed": 1}),
        ([asked(0), audio(1, turn=1), ended(2), ended(3)], {"completed": 1}),
        ([audio(0), audio(0.1)], {}),
        ([asked(0), audio(1), ended(2), asked(3, 2), audio(4), ended(5, 2)], {"completed": 2}),
        ([asked(0), audio(1, turn=1), ev.StreamEnd(t=T0 + 2, stream="a", reason="x")], {"abandoned": 1}),
    ],
)
def test_outcomes(events, expected):
    live = table()
    feed(live, *events)
    assert outcomes(live) == expected


def test_silence_is_the_wait_for_speech_that_is_due():
    live = table()
    stream = feed(live, asked(0))
    assert stream.silent_s(T0 + 3) == pytest.approx(3)
    feed(live, audio(3, turn=1, dur_ms=920.0))
    assert stream.silent_s(T0 + 3.9) == 0
    assert stream.silent_s(T0 + 6) == pytest.approx(2)
    feed(live, ended(6))
    assert stream.silent_s(T0 + 9) == 0


def test_a_camera_that_starts_anew_is_no_drift():
    live = table()
    feed(live, video(0, 90_000), asked(0), audio(0, turn=1, dur_ms=5000.0), video(0.5, 90_500))
    stream = feed(live, video(1.0, 0), video(1.5, 500))
    assert stream.drift_ms == pytest.approx(0, abs=1e-3)


def test_frames_experts_and_resumption_are_counted():
    live = table()
    good = {"checksum": 1 ^ 2 ^ 3 ^ 4, "codes": [1, 2, 3, 4]}
    feed(
        live,
        audio(0, frame_id=10, expert_mask=0b101, **good),
        audio(0.08, frame_id=14, expert_mask=0b1, checksum=0, codes=[1, 2, 3, 4]),
        audio(0.16, frame_id=14),
        audio(0.24, frame_id=12),
        audio(0.32, frame_id=15, dur_ms=240.0),
        ev.Resume(t=T0 + 1, stream="a", last_good_id=14, result="hit", replayed=3, extra_ms=63),
        ev.Resume(t=T0 + 1, stream="a", last_good_id=14, result="surprise"),
        ev.Rtx(t=T0 + 1, stream="a", from_id=3, count=2, result="hit"),
    )
    totals = live.totals
    assert totals.audio_frames == 7
    assert (totals.audio_frames_lost, totals.audio_loss_runs) == (3, 1)
    assert (totals.audio_frames_duplicate, totals.audio_frames_late, totals.audio_frames_corrupt) == (1, 1, 1)
    assert totals.expert_frames()[:4] == [2, 0, 1, 0]
    assert {k: n for k, n in totals.resume_requests.items() if n} == {"hit": 1, "other": 1}
    assert totals.resume_replayed_frames == 3
    assert totals.resume_extra_delay.sum == pytest.approx(0.063)
    assert totals.rtx_requests["hit"] == 1


def test_attempts_of_one_return_count_as_one_return_and_what_is_not_a_clients_as_none():
    live = table()
    returned = [
        ev.Resume(t=T0, stream="a", last_good_id=14, result="hit", replayed=3, extra_ms=63, again=again)
        for again in (None, True, True)
    ]
    strange = [
        ev.Resume(t=T0, stream="unknown", last_good_id=0, result="junk"),
        ev.Resume(t=T0, stream="a", last_good_id=0, result="unauthorized"),
        ev.Rtx(t=T0, stream="unknown", from_id=0, count=0, result="junk"),
        ev.Rtx(t=T0, stream="a", from_id=0, count=0, result="unauthorized"),
    ]
    live.apply_all([*returned, *strange])
    totals = live.totals
    assert {k: n for k, n in totals.resume_requests.items() if n} == {"hit": 1}
    assert (totals.resume_attempts, totals.resume_replayed_frames) == (3, 3)
    assert sum(totals.resume_extra_delay.counts) == 1
    assert totals.resume_strangers == {"junk": 2, "unauthorized": 2}
    assert sum(totals.rtx_requests.values()) == 0


def test_duplicates_are_not_played_again():
    stream = feed(table(), asked(0), audio(0, turn=1, frame_id=1), audio(0, turn=1, frame_id=1))
    assert stream.player.sent_ms == 80


def test_a_new_turn_may_number_from_the_start_again():
    live = table()
    feed(live, asked(0), audio(0, turn=1, frame_id=50), ended(1), asked(2, 2), audio(2, turn=2, frame_id=0))
    feed(live, audio(2.1, turn=2, frame_id=1))
    assert live.totals.audio_frames_duplicate == live.totals.audio_frames_lost == 0


def test_an_epoch_resets_the_trend():
    live = table()
    for i in range(400):
        feed(live, audio(i * 0.08, frame_id=i, pts_ms=0.0, video_pts_ms=i * 0.1))
    stream = live.streams[0]
    assert stream.trend.slope() is not None
    feed(live, audio(33, frame_id=100_000, pts_ms=0.0, video_pts_ms=0.0))
    assert stream.trend.slope() is None


def test_state_survives_as_plain_data():
    whole, half = table(), table()
    recorded = list(wire_events("default-chunks"))
    for event in recorded:
        whole.apply(event)
    for event in recorded[:200]:
        half.apply(event)
    packed = msgspec.msgpack.encode(half.state)
    again = StreamTable(Settings(), msgspec.msgpack.decode(packed, type=State))
    for event in recorded[200:]:
        again.apply(event)
    assert again.state == whole.state


def test_a_turn_goes_on_that_an_older_program_kept():
    live = table()
    feed(live, video(0, 0), asked(0), audio(0, turn=1, dur_ms=920.0), audio(1.2, turn=1, dur_ms=9000.0))
    kept = msgspec.to_builtins(live.state)
    stream = kept["streams"]["a"]
    known = {"start_t", "end_t", "sent_ms"}
    stream["player"] = {k: v for k, v in stream["player"].items() if k in known} | {"pinned": True}
    stream["picture"] = {k: v for k, v in stream["picture"].items() if k in {"pts_ms", "t", "seen"}}
    stream["answers"]["path_known"] = True
    del kept["ear_up"], stream["pending"], stream["by_kernel"], stream["least_path_ms"]
    again = StreamTable(Settings(), msgspec.convert(kept, State))
    assert again.drift_ms(again.streams[0], T0 + 2) == pytest.approx(-200, abs=1e-3)


def test_an_outcome_that_an_older_program_did_not_count_is_counted_after_all():
    live = table()
    del live.totals.turns["refused"]
    again = StreamTable(Settings(), msgspec.msgpack.decode(msgspec.msgpack.encode(live.state), type=State))
    assert list(again.totals.turns) == list(OUTCOMES)
    feed(again, asked(0), ended(2, reason="refused"))
    assert outcomes(again) == {"refused": 1}


def test_a_new_page_threshold_is_an_edge_of_the_drift_histograms():
    live = table()
    feed(live, audio(0, pts_ms=0.0, video_pts_ms=70.0))
    live.configure(Settings(alerts=Alerts(drift_page_ms=75)))
    assert 0.075 in live.totals.drift_edges
    feed(live, audio(0.1, pts_ms=0.0, video_pts_ms=75.0))
    edge = live.totals.drift_edges.index(0.075)
    assert live.totals.codec_drift_abs.counts[edge] == 1


def test_an_error_is_counted_by_its_code_where_that_is_known():
    live = table()
    codes = ("response_already_active", "response_already_active", "made-up", "other")
    feed(live, asked(0), *(ev.Fault(t=T0 + 1, stream="a", code=code) for code in codes))
    assert {code: n for code, n in live.totals.session_faults.items() if n} == {
        "response_already_active": 2,
        "other": 2,
    }


def test_a_turn_that_ends_in_a_call_of_a_tool_is_counted_under_no_outcome():
    live = table()
    feed(live, asked(0), ended(1, 1, "called"))
    assert outcomes(live) == {}
    feed(live, asked(2, 2), audio(2.5, turn=2), ended(3, 2, "incomplete"))
    assert outcomes(live) == {"incomplete": 1}
