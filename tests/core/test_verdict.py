"""The verdicts of a turn: each cause with its evidence, and not without it."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from omniwatch.core.record import PIECES, Arrival, Piece, Record, add
from omniwatch.core.usual import Usual
from omniwatch.core.verdict import CAUSES, Terms, Verdict, judge, underrun_s

USUAL = Usual(0.2, 0.2, 0.1, 0.5)
TERMS = Terms(usual=USUAL)
COMPLETED = {"outcome": "completed", "ended_t": 200.0, "over_t": 210.0}


def pieces(*times_ms: tuple[float, float]) -> list[Piece]:
    return [Piece(t, t, ms) for t, ms in times_ms]


def answered(thinking: float = 0.2, voice: float = 0.2, network: float = 0.1, **fields: object) -> Record:
    """A turn of four seconds, sent at twice its pace; asked at 100."""
    sent_t = 100 + thinking + voice
    sent = pieces(*((sent_t + n / 2, 1000) for n in range(4)))
    arrived = [Piece(p.t + network, p.t + network, p.ms) for p in sent]
    made = {
        "turn": 1,
        "number": 1,
        "asked_t": 100.0,
        "text_t": 100 + thinking,
        "sent_t": sent_t,
        "sent": sent,
        "sent_ms": 4000.0,
        "arrived": arrived,
        "ear": "kernel",
        "rtt_ms": 1000 * (thinking + voice + network),
    }
    return Record(**{**made, **COMPLETED, **fields})


def starving(
    *sent: tuple[float, float], way: float = 0.1, arrived: list[Piece] | None = None, **fields: object
) -> Record:
    """A turn asked at 100 with a prompt answer, its speech handed over at these times."""
    handed = pieces(*sent)
    there = [Piece(p.t + way, p.t + way, p.ms) for p in handed] if arrived is None else arrived
    made = {"sent_t": handed[0].t, "text_t": 100.2, "sent": handed, "arrived": there, "rtt_ms": 500.0}
    return answered(**{**made, **fields})


def the(symptom: str, record: Record, terms: Terms = TERMS) -> Verdict:
    (found,) = [verdict for verdict in judge(record, terms) if verdict.symptom == symptom]
    return found


def cause(symptom: str, record: Record, terms: Terms = TERMS) -> tuple[str, str]:
    verdict = the(symptom, record, terms)
    return verdict.cause, verdict.certainty


SLOW = [(100.4 + 1.6 * n, 1000.0) for n in range(6)]
"""Speech at 1.6 of real time, where 0.5 is usual."""
STALLED = [*((100.4 + n / 2, 1000.0) for n in range(3)), *((106.4 + n / 2, 1000.0) for n in range(3))]


def test_a_good_turn_has_no_verdict():
    assert judge(answered(), TERMS) == []


@pytest.mark.parametrize("outcome", ["interrupted", "refused", "aborted", "abandoned"])
def test_a_turn_that_was_not_to_be_has_none(outcome):
    assert judge(answered(thinking=3, outcome=outcome), TERMS) == []


def test_a_listener_who_went_away_has_none():
    assert judge(answered(thinking=3, heard=False), TERMS) == []


def test_late_by_thinking_or_voice():
    assert cause("late", answered(thinking=1.2)) == ("thinking", "seen")
    assert cause("late", answered(voice=1.2)) == ("voice", "seen")
    assert cause("late", answered(thinking=1.2, voice=0.8)) == ("thinking", "mostly")
    verdict = the("late", answered(thinking=1.2))
    assert verdict.excess_ms == pytest.approx(1000)
    assert verdict.parts["thinking"] == pytest.approx(1000)


def test_without_the_text_thinking_and_voice_are_one():
    record = answered(voice=1.2)
    record.text_t = -1.0
    assert cause("late", record) == ("thinking", "seen")
    assert the("late", record).excess_ms == pytest.approx(1000)


def test_late_by_the_first_turns_of_a_writer():
    assert cause("late", answered(thinking=1.2, nth=3)) == ("warmup", "seen")
    assert cause("late", answered(thinking=1.2, nth=4)) == ("thinking", "seen")
    assert cause("late", answered(thinking=1.2, nth=0)) == ("thinking", "seen")
    assert cause("late", answered(network=1.2, nth=1)) == ("network", "seen")


def test_late_by_load():
    busy = {"others": [(99.0, 3)]}
    assert cause("late", answered(thinking=0.8, **busy)) == ("load", "seen")
    assert cause("late", answered(thinking=0.8)) == ("thinking", "seen")
    assert cause("late", answered(thinking=0.8, others=[(100.9, 3)])) == ("thinking", "seen"), "too short"
    assert cause("late", answered(thinking=5.0, others=[(99.0, 1)])) == ("thinking", "seen"), (
        "one other takes no such share"
    )


def test_of_two_inside_the_server_the_one_that_covers_more():
    by_load = the("late", answered(thinking=0.8, others=[(99.0, 3)], nth=1))
    assert (by_load.cause, by_load.numbers["turn_of_writer"]) == ("load", 1.0)
    by_warmup = the("late", answered(thinking=3.0, others=[(99.0, 3)], nth=1))
    assert by_warmup.cause == "warmup"
    assert 0 < by_warmup.numbers["load_ms"] < by_warmup.excess_ms


def test_late_by_the_network():
    assert cause("late", answered(network=1.0)) == ("network", "seen")
    assert cause("late", answered(rtt_ms=400.0, client_rtt_ms=1500.0, ear="sent", arrived=[])) == (
        "network",
        "seen",
    )
    assert cause("late", answered(rtt_ms=1500.0, ear="sent", arrived=[])) == ("unknown", "unknown"), (
        "nothing was acknowledged"
    )


def test_late_by_a_connection_that_was_lost():
    assert cause("late", answered(network=1.0, cuts=[100.9])) == ("cut", "seen")
    assert cause("late", answered(network=1.0, cuts=[99.0])) == ("network", "seen")
    assert cause("late", answered(network=1.0, cuts=[103.0])) == ("network", "seen")


def test_late_by_the_listener():
    record = answered(network=1.0)
    record.arrived[0].window_ms = 600.0
    assert cause("late", record) == ("listener", "seen")
    record.arrived[0].window_ms = 300.0
    assert cause("late", record) == ("network", "seen")


def test_late_by_the_taps_own_process():
    record = answered(thinking=1.4, pauses=[(101.3, 1100.0)])
    assert cause("late", record) == ("stall", "seen")
    assert cause("late", answered(thinking=1.4, pauses=[(99.0, 1100.0)])) == ("thinking", "seen")
    assert cause("late", answered(thinking=1.4, pauses=[(101.3, 300.0)])) == ("thinking", "seen")


def test_starved_by_pace():
    verdict = the("starved", starving(*SLOW))
    assert (verdict.cause, verdict.certainty) == ("pace", "seen")
    assert verdict.excess_ms == pytest.approx(1600 - 1080 + 4 * 600)


def test_starved_by_chunks():
    late_second = [(100.4, 320.0), *((101.4 + n, 2000.0) for n in range(4))]
    assert cause("starved", starving(*late_second)) == ("chunks", "seen")
    assert cause("starved", starving(*late_second), Terms()) == ("chunks", "seen"), "before anything is usual"
    fine = [(100.4, 320.0), *((100.4 + 0.16 * (n + 1), 320.0) for n in range(20))]
    assert judge(starving(*fine), TERMS) == []


def test_chunks_as_long_as_those_of_good_turns_are_not_why():
    slow = [(100.4, 320.0), *((102.4 + 2.4 * n, 2000.0) for n in range(4))]
    known = Terms(usual=Usual(0.2, 0.2, 0.1, 0.0, 2.0, 0.32))

    def why(chunk_ms: float, first_ms: float) -> str:
        return cause("starved", starving(*slow, chunk_ms=chunk_ms, first_ms=first_ms), known)[0]

    assert why(2000.0, 320.0) == "pace"
    assert why(4000.0, 320.0) == "chunks", "longer ones"
    assert why(2000.0, 80.0) == "chunks", "a shorter first one"
    longer = [
        Piece(100.9, 100.9, 320.0),
        *(Piece(101.6 + 0.5 * n, 101.6 + 0.5 * n, 2000.0) for n in range(4)),
    ]
    prompt = [(100.4, 320.0), *((100.6 + 0.5 * n, 2000.0) for n in range(4))]
    late = starving(*prompt, arrived=longer, chunk_ms=2000.0, first_ms=320.0)
    assert cause("starved", late, known) == ("network", "seen")


def test_starved_by_a_stall():
    verdict = the("starved", starving(*STALLED))
    assert (verdict.cause, verdict.certainty) == ("stall", "seen")
    assert verdict.numbers["stopped"] == "engine"
    late = the("starved", starving(*STALLED, pauses=[(106.4, 4000.0)]))
    assert (late.cause, late.numbers["stopped"]) == ("stall", "process")


def test_a_pause_that_the_speech_around_it_explains_is_no_stall():
    long_ones = [(100.4, 1000.0), (100.9, 1000.0), *((103.0 + 2.1 * n, 4000.0) for n in range(3))]
    assert all(verdict.cause != "stall" for verdict in judge(starving(*long_ones), TERMS))


def test_starved_by_load():
    assert cause("starved", starving(*SLOW, others=[(99.0, 3)])) == ("load", "seen")
    assert cause("starved", starving(*SLOW, others=[(99.0, 3), (100.5, 0)])) == ("pace", "seen")


def test_starved_by_the_network():
    prompt = [(100.4 + n / 2, 1000.0) for n in range(6)]
    held_up = pieces((100.5, 1000), (101.0, 1000), *((105.0, 1000.0) for _ in range(4)))
    assert cause("starved", starving(*prompt, arrived=held_up)) == ("network", "seen")
    assert judge(starving(*prompt), TERMS) == []
    assert judge(starving(*prompt, arrived=held_up, ear="sent"), TERMS) == [], "what arrives is not known"


def test_starved_by_a_listener_whose_window_is_closed():
    prompt = [(100.4 + n / 2, 1000.0) for n in range(6)]

    def held_up(window_ms: float) -> list[Piece]:
        found = pieces((100.5, 1000), (101.0, 1000), *((105.0, 1000.0) for _ in range(4)))
        found[2].window_ms = window_ms
        return found

    assert cause("starved", starving(*prompt, arrived=held_up(3500.0))) == ("listener", "seen")
    assert cause("starved", starving(*prompt, arrived=held_up(500.0))) == ("network", "seen")
    early = held_up(0.0)
    early[0].window_ms = early[1].window_ms = 3500.0
    assert cause("starved", starving(*prompt, arrived=early)) == ("network", "seen"), (
        "it was open while he starved"
    )


def test_starved_by_its_own_word():
    prompt = [(100.4 + n / 2, 1000.0) for n in range(6)]
    assert cause("starved", starving(*prompt, underrun_ms=900.0)) == ("listener", "seen")
    assert cause("starved", starving(*prompt, underrun_ms=900.0, ear="sent", arrived=[])) == (
        "unknown",
        "unknown",
    )
    assert judge(starving(*prompt, underrun_ms=90.0), TERMS) == []
    assert judge(starving(*SLOW, underrun_ms=0.0), TERMS) == [], "a client with a larger buffer"


def test_starved_by_a_connection_that_was_lost():
    prompt = [(100.4 + n / 2, 1000.0) for n in range(6)]
    held_up = pieces((100.5, 1000), (101.0, 1000), *((105.0, 1000.0) for _ in range(4)))
    assert cause("starved", starving(*prompt, arrived=held_up, cuts=[104.0])) == ("cut", "seen")
    assert cause("starved", starving(*prompt, arrived=held_up, cuts=[99.0])) == ("network", "seen")


def test_a_pause_in_what_was_sent_that_ends_with_a_return_is_the_cuts():
    times = (*(100.4 + n for n in range(3)), *(106.4 + n for n in range(3)))
    sent = [Piece(t, t, 1000.0, t) for t in times]

    def by(*cuts: float, **fields: object) -> str:
        made = {"sent": sent, "sent_t": 100.4, "arrived": [], "ear": "sent", "rtt_ms": 500.0}
        return cause("starved", answered(**{**made, "cuts": list(cuts), **fields}))[0]

    assert by(106.0) == "cut"
    assert by() == "stall"
    assert by(103.0) == "stall", "it was not waited for"
    assert by(102.0) == "stall", "of another pause"


def test_a_stall_beside_long_pieces_is_one():
    """Pieces of a long answer at its own pace that became one, with a pause of three seconds between."""
    first, last = (Piece(t, t + 9.92, 10_000.0, t) for t in (100.4, 123.4))
    short = [Piece(t, t + 0.32, 400.0, t) for t in (113.4 + 0.4 * n for n in range(25))]
    made = {"sent": [first, *short, last], "sent_t": 100.4, "arrived": [], "ear": "sent", "rtt_ms": 500.0}
    verdict = the("starved", answered(**made), Terms())
    assert (verdict.cause, verdict.certainty) == ("stall", "seen")


def test_a_server_that_full_buffers_hold_back_is_no_stall():
    sent = [*((100.4 + n / 2, 1000.0) for n in range(3)), *((106.4 + n / 2, 1000.0) for n in range(3))]
    arrived = pieces((100.5, 1000), (106.3, 1000), (106.4, 1000), (106.5, 1000), (107.0, 1000), (107.5, 1000))
    assert cause("starved", starving(*sent, arrived=arrived)) == ("network", "seen")
    assert cause("starved", starving(*sent)) == ("stall", "seen"), "all had arrived by then"


def test_skewed():
    assert cause("skewed", answered(skew_ms=-75.0, skew_parts={"camera": 75.0})) == ("camera", "seen")
    parts = {"timestamps": 70.0, "camera": 20.0}
    assert cause("skewed", answered(skew_ms=90.0, skew_parts=parts)) == ("timestamps", "mostly")
    assert cause("skewed", answered(skew_ms=90.0, skew_parts={"cut": 90.0})) == ("cut", "seen")
    assert cause("skewed", answered(skew_ms=90.0)) == ("unknown", "unknown")
    assert judge(answered(skew_ms=60.0, skew_parts={"camera": 60.0}), TERMS) == []


def test_silent_and_failed():
    assert cause("silent", answered(silent_ms=3700.0)) == ("server", "seen")
    assert judge(answered(silent_ms=3500.0), TERMS) == []
    mute = answered(text_t=-1.0, sent=[], sent_ms=0.0, sent_t=-1.0, arrived=[], outcome="no_audio", chars=12)
    assert cause("silent", mute) == ("server", "seen")
    mute.chars = None
    assert judge(mute, TERMS) == [], "an answer without text owes no speech"
    assert cause("failed", answered(outcome="failed")) == ("server", "seen")


def test_overrun():
    small = Terms(client_buffer_ms=2000.0, usual=USUAL)
    assert cause("overrun", answered(ahead_ms=2100.0), small) == ("ahead", "seen")
    assert judge(answered(ahead_ms=1900.0), small) == []
    assert judge(answered(ahead_ms=2100.0), TERMS) == []


def test_what_is_less_than_half_is_unknown():
    third = starving(*SLOW, underrun_ms=10_000.0)
    assert cause("starved", third) == ("listener", "mostly")
    even = answered(thinking=0.7, voice=0.7, network=0.55)
    assert cause("late", even) == ("unknown", "unknown")


def test_every_cause_is_one_of_the_table():
    assert sum(map(len, CAUSES.values())) == 33


@pytest.mark.parametrize("seed", range(20))
def test_pieces_that_become_one_change_no_underrun(seed):
    luck, t, kept, every = random.Random(seed), 100.0, [], []
    for _ in range(400):
        t += luck.choice((0.01, 0.08, 0.08, 0.3, 1.5))
        add(kept, [Arrival(t, ms := luck.choice((80.0, 320.0)))])
        every.append(Piece(t, t, ms))
    assert len(kept) <= PIECES
    assert sum(p.ms for p in kept) == pytest.approx(sum(p.ms for p in every))
    for buffer_s in (0.0, 0.08, 1.0):
        first_t = every[0].t
        assert underrun_s(kept, first_t, buffer_s) == pytest.approx(underrun_s(every, first_t, buffer_s))


def test_the_longest_pauses_stay():
    kept: list[Piece] = []
    t = 0.0
    for n in range(500):
        t += 3.0 if n in (100, 300) else 0.25
        add(kept, [Arrival(t, 320.0)])
    pauses = sorted(b.first_t - a.last_t for a, b in pairwise(kept))
    assert pauses[-2:] == pytest.approx([3.0, 3.0])


def test_a_record_as_json_names_nobody():
    record = answered(turn="secret-turn-id")
    assert "secret" not in msgspec.json.encode(record.as_json()).decode()
