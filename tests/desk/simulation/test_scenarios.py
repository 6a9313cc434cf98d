"""Simulated servers: the same again for the same seed, and each scenario as it says of itself."""

from __future__ import annotations

from functools import cache, reduce
from itertools import pairwise
from operator import xor

import pytest

from omniwatch import events as ev
from omniwatch.core.rule_states import Span, contract_rules, spans
from omniwatch.desk.simulation import SCENARIOS, Condition, Scenario, SimulatedListener, events
from omniwatch.replay import Replay
from omniwatch.settings import Settings

T0 = 1_700_000_000.0

each_scenario = pytest.mark.parametrize("name", SCENARIOS)


@cache
def script(name: str, seed: int = 1) -> tuple[ev.Event, ...]:
    return tuple(events(SCENARIOS[name], seed, 0.0, SCENARIOS[name].duration_s))


def of(kind: type, name: str, seed: int = 1) -> list:
    return [event for event in script(name, seed) if isinstance(event, kind)]


def drift_ms(audio: ev.Audio) -> float:
    return audio.pts_ms - audio.video_pts_ms


def replayed(scenario: Scenario, seed: int, duration_s: float) -> Replay:
    replay = Replay(Settings())
    for event in events(scenario, seed, T0, duration_s):
        replay.apply(event)
    replay.finish()
    return replay


def fired(replay: Replay) -> dict[str, list[Span]]:
    """When each rule was firing, for whichever stream, in seconds from the start."""
    found = {
        rule.name: [
            Span(span.state, span.start_t - T0, span.end_t - T0, span.over)
            for track in replay.tracks.values()
            for span in spans(rule, track.samples, replay.settings.alerts.evaluation_interval_s)
            if span.state == "firing"
        ]
        for rule in contract_rules(replay.settings.alerts)
    }
    return {name: firing for name, firing in found.items() if firing}


@each_scenario
@pytest.mark.slow
def test_the_same_arguments_give_the_same_events_and_others_do_not(name):
    scenario = SCENARIOS[name]
    first = script(name)
    assert list(events(scenario, 1, 0.0, scenario.duration_s)) == list(first)
    assert list(events(scenario, 1, 0.0, 20.0)) == [event for event in first if event.t < 20]
    later = list(events(scenario, 1, T0, 20.0))
    assert [event.t - T0 for event in later] == pytest.approx([e.t for e in first[: len(later)]], abs=1e-5)
    assert list(events(scenario, 2, 0.0, 20.0)) != list(first[: len(later)])


@each_scenario
def test_events_come_in_the_order_of_time_and_hold_to_the_contract(name):
    times = [event.t for event in script(name)]
    assert times == sorted(times)
    assert isinstance(script(name)[0], ev.StreamStart)
    assert times[0] == 0
    lines = b"".join(map(ev.encode, script(name)))
    assert ev.decode_lines(lines) == list(script(name))


@each_scenario
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_a_scenario_fires_what_it_says_within_its_fault_and_nothing_else(name, seed):
    scenario = SCENARIOS[name]
    firing = fired(replayed(scenario, seed, scenario.duration_s + 60))
    expected = {"TokenRTT", "CodecDrift"} if name == "overload" else {scenario.alert} - {None}
    assert set(firing) == expected
    for name_of_rule, (span,) in firing.items():
        assert scenario.fault_at_s + 15 <= span.start_t < scenario.mended_at_s
        assert span.over
        assert scenario.mended_at_s <= span.end_t < scenario.mended_at_s + 45, name_of_rule


@each_scenario
def test_a_summary_is_a_sentence_and_the_name_is_the_key(name):
    scenario = SCENARIOS[name]
    assert scenario.name == name
    assert scenario.summary.endswith(".")
    assert (scenario.fault_at_s is None) <= (scenario.alert is None)


def test_steady_is_30_pictures_and_12_5_frames_a_second_in_codes_that_fit():
    assert len(of(ev.Video, "steady")) == pytest.approx(120 * 30, abs=5)
    spoken: dict[int, list[ev.Audio]] = {}
    for audio in of(ev.Audio, "steady"):
        spoken.setdefault(audio.turn, []).append(audio)
        assert reduce(xor, audio.codes) == audio.checksum
        assert len(audio.codes) == 4
        assert max(audio.codes) < 2048
        assert audio.expert_mask.bit_count() == 2
        assert audio.expert_mask < 16
        assert abs(drift_ms(audio)) < 25
    for turn in spoken.values():
        assert (turn[-1].t - turn[0].t) / (len(turn) - 1) == pytest.approx(0.08, rel=0.005)
        assert {round(b.pts_ms - a.pts_ms, 2) for a, b in pairwise(turn)} == {80.0}
    ids = [audio.frame_id for audio in of(ev.Audio, "steady")]
    assert ids == list(range(len(ids)))


def test_a_picture_is_never_named_before_it_came():
    seen: set[float] = {0.0}
    for event in script("handover-120"):
        if isinstance(event, ev.Video):
            seen.add(event.pts_ms)
        elif isinstance(event, ev.Audio):
            assert event.video_pts_ms in seen


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.slow
def test_progressive_drift_is_300_ms_behind_after_ten_minutes(seed):
    for audio in of(ev.Audio, "progressive-drift", seed):
        assert drift_ms(audio) == pytest.approx(-0.5 * audio.t, abs=26)
    assert drift_ms(of(ev.Audio, "progressive-drift", seed)[-1]) == pytest.approx(-300, abs=30)


def test_reconnect_jump_is_an_outage_a_resume_and_a_realignment():
    begins, ends = SCENARIOS["reconnect-jump"].fault_at_s, SCENARIOS["reconnect-jump"].mended_at_s
    (resume,) = of(ev.Resume, "reconnect-jump")
    assert begins < resume.t < begins + 0.1
    assert (resume.result, resume.outage_ms, resume.first_id) == ("hit", 3000, resume.last_good_id + 1)
    assert 36 <= resume.replayed <= 39
    quiet = [e for e in script("reconnect-jump") if begins - 3 < e.t < begins]
    assert quiet == []
    frames = of(ev.Audio, "reconnect-jump")
    assert [audio.frame_id for audio in frames] == list(range(len(frames)))
    away = [audio for audio in frames if begins + 0.2 < audio.t < ends]
    assert away[0].t < begins + 0.3
    assert all(drift_ms(audio) == pytest.approx(-180, abs=26) for audio in away)
    (realign,) = of(ev.Realign, "reconnect-jump")
    assert (realign.t, realign.shift_ms) == (ends, -180)
    assert all(abs(drift_ms(audio)) < 26 for audio in frames if audio.t > ends + 0.1)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.slow
def test_handovers_lose_frames_ask_again_and_resume_without_a_page(seed):
    replay = replayed(SCENARIOS["handover-120"], seed, 300)
    (track,) = replay.tracks.values()
    totals = track.totals
    assert totals.audio_frames_lost > totals.audio_frames_late > 0
    assert totals.rtx_requests["hit"] >= 1
    assert totals.resume_requests["hit"] >= 2
    assert totals.audio_loss_runs >= totals.rtx_requests["hit"]
    assert totals.audio_frames_duplicate == 0
    assert -60 < track.drift_low_ms < track.drift_high_ms < 60
    assert max(track.rtts_ms["server"]) < 800


def test_late_answers_are_late_in_the_fault_only():
    scenario = SCENARIOS["late-answers"]
    asked: dict[int, float] = {}
    for event in script("late-answers"):
        if isinstance(event, ev.TurnStart):
            asked[event.turn] = event.t
        elif isinstance(event, ev.Audio) and event.turn in asked:
            at = asked.pop(event.turn)
            assert (event.t - at > 0.8) == scenario.is_faulty(at)


def test_a_stall_silences_the_voice_but_not_the_picture():
    scenario = SCENARIOS["stall"]
    begins, ends = scenario.fault_at_s, scenario.mended_at_s
    silent = [e for e in script("stall") if begins <= e.t < ends]
    assert {type(event) for event in silent} == {ev.Video}
    assert len(silent) == pytest.approx(30 * (ends - begins), abs=5)
    first, *_ = of(ev.TurnEnd, "stall")
    assert (first.turn, first.reason) == (1, "error")
    assert ends < first.t < ends + 0.1
    assert max(audio.t for audio in of(ev.Audio, "stall") if audio.turn == 1) > begins - 0.1


def test_corrupt_frames_are_of_both_kinds_and_in_the_fault_only():
    scenario = SCENARIOS["corrupt-frames"]
    wrong_sum, beyond, frames = 0, 0, 0
    for audio in of(ev.Audio, "corrupt-frames"):
        bad = (reduce(xor, audio.codes) != audio.checksum, max(audio.codes) >= 2048)
        assert bad != (True, True)
        assert not any(bad) or scenario.is_faulty(audio.t)
        frames += scenario.is_faulty(audio.t)
        wrong_sum += bad[0]
        beyond += bad[1]
    assert min(wrong_sum, beyond) >= 3
    assert (wrong_sum + beyond) / frames == pytest.approx(0.05, abs=0.03)


def test_the_second_stream_comes_measures_for_itself_and_leaves():
    first, second = (s.stream for s in of(ev.StreamStart, "two-streams"))
    mine = [event for event in script("two-streams") if event.stream == second]
    assert (mine[0].t, mine[-1].t) == (15, 95)
    assert isinstance(mine[-1], ev.StreamEnd)
    assert {e.stream for e in of(ev.Rtt, "two-streams")} == {second}
    assert max(e.t for e in script("two-streams") if e.stream == first) > 119.9


def test_a_fault_can_be_moved_with_as_much_script_after_it():
    moved = SCENARIOS["reconnect-jump"].moved(fault_at_s=20, mended_at_s=60)
    assert (moved.fault_at_s, moved.mended_at_s, moved.duration_s) == (20, 60, 90)
    later = SCENARIOS["reconnect-jump"].moved(fault_at_s=30)
    assert (later.fault_at_s, later.mended_at_s) == (30, 65)
    (span,) = fired(replayed(moved, 1, 90))["CodecDrift"]
    assert 35 <= span.start_t <= 41
    for wrong in ({"fault_at_s": 2.0}, {"mended_at_s": 10.0}):
        with pytest.raises(ValueError, match="the fault must begin at 3 s or later"):
            SCENARIOS["reconnect-jump"].moved(**wrong)
    with pytest.raises(ValueError, match="steady has no fault to move"):
        SCENARIOS["steady"].moved(5, 10)


def test_conditions_can_be_combined_and_joined_late():
    """What one entry of the table may ask for: everything at once, a client that comes after the fault began."""
    scenario = Scenario(
        name="all-at-once",
        summary="Everything.",
        duration_s=120,
        fault_at_s=30,
        mended_at_s=80,
        fault=Condition(drift_ppm=-1000, jump_ms=100, outage_s=8, corrupt_share=0.5, cuts_per_minute=20),
        always=Condition(cuts_per_minute=20, cut_jump_ms=5, loss_share=0.1),
        speech_s=(100, 100),
        listeners=(SimulatedListener(), SimulatedListener(joins_s=50)),
    )
    made = list(events(scenario, 3, 0.0, 200.0))
    assert [event.t for event in made] == sorted(event.t for event in made)
    resumes = [event for event in made if isinstance(event, ev.Resume) and event.outage_ms > 7000]
    assert [(resume.result, resume.replayed) for resume in resumes] == [("replay", 75)]
    late = [e for e in made if isinstance(e, ev.Audio) and e.stream.endswith("-1")]
    assert late[0].t > 50
    assert abs(drift_ms(late[0])) < 30


def test_a_user_who_barges_in_ends_each_answer_and_what_that_costs_is_counted():
    scenario = SCENARIOS["barge-in"]
    spoke_up = {event.turn: event.t for event in of(ev.Interrupt, "barge-in")}
    ends = {event.turn: event for event in of(ev.TurnEnd, "barge-in")}
    assert len(spoke_up) > 8
    assert [turn for turn, end in ends.items() if end.reason == "interrupted"] == [*spoke_up]
    assert all(scenario.fault_at_s < t < scenario.mended_at_s + 5 for t in spoke_up.values())
    last = {event.turn: event.t for event in of(ev.Audio, "barge-in")}
    stale_s = [max(0.0, last[turn] - t) for turn, t in spoke_up.items()]
    assert min(stale_s) > 0.1
    assert max(stale_s) < 1.0
    totals = replayed(scenario, 1, scenario.duration_s).totals
    assert totals.interruption_stale.sum == pytest.approx(sum(stale_s), abs=1e-4)
    assert sum(totals.interruption_answer.counts) == len(spoke_up)
