"""What the page says of bad turns: counters by symptom and cause, the verdict so far, odd lengths, how far speech runs ahead."""

from __future__ import annotations

import pytest

from helpers.events import T0, asked, audio, ended, feed
from omniwatch import events as ev
from omniwatch.core.streams import StreamTable
from omniwatch.core.verdict import CAUSES
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.settings import Settings, Streams

Series = dict[tuple[str, ...], float]


def shown(table: StreamTable, t: float, name: str) -> Series:
    """The samples of a family at t, by their label values."""
    for family in collect(ScrapeSnapshot(T0 + t, table)):
        for sample in family.samples:
            if sample.name == name:
                return {
                    tuple(s.labels.values()): s.value for s in family.samples if s.name == name and s.value
                }
    return {}


def a_turn(
    begin: float, thinking: float = 0.3, number: int = 1, chars: int | None = None, **words: object
) -> list[ev.Event]:
    speech = [audio(begin + thinking + n / 2, turn=number, dur_ms=1000) for n in range(3)]
    end = ended(begin + thinking + 1, number)
    end.chars = chars
    for name, value in words.items():
        setattr(end, name, value)
    return [asked(begin, number), *speech, end]


def test_all_pairs_of_the_table_start_at_0_and_no_others():
    families = {f.name: f for f in collect(ScrapeSnapshot(T0, StreamTable(Settings())))}
    pairs = {(s.labels["symptom"], s.labels["cause"]): s.value for s in families["omni_turns_bad"].samples}
    assert set(pairs) == {(symptom, cause) for symptom, causes in CAUSES.items() for cause in causes}
    assert {*pairs.values()} == {0}
    assert [s.value for s in families["omni_turns_judged"].samples] == [0]
    assert not families["omni_turn_bad_now"].samples


def test_a_bad_turn_is_counted_once_by_its_cause():
    table = StreamTable(Settings())
    feed(table, *a_turn(0, thinking=1.5), *a_turn(20, number=2))
    table.advance(T0 + 40)
    assert shown(table, 40, "omni_turns_bad_total") == {("late", "thinking"): 1}
    assert shown(table, 40, "omni_turns_judged_total") == {(): 2}


def test_the_verdict_so_far_of_an_answer_that_does_not_come():
    table = StreamTable(Settings())
    feed(table, asked(0))
    assert shown(table, 0.7, "omni_turn_bad_now") == {}
    assert shown(table, 2, "omni_turn_bad_now") == {("0", "late", "thinking"): 1}
    feed(table, ev.Text(t=T0 + 2.1, stream="a", turn=1), audio(2.3, turn=1, dur_ms=1000), ended(2.4))
    table.advance(T0 + 4)
    assert shown(table, 4, "omni_turn_bad_now") == {("0", "late", "thinking"): 1}
    table.advance(T0 + 20)
    assert shown(table, 20, "omni_turn_bad_now") == {}


def test_the_verdict_so_far_of_a_listener_who_has_nothing_to_hear():
    table = StreamTable(Settings())
    feed(table, asked(0), *(audio(0.3 + 0.4 * n, turn=1, dur_ms=400) for n in range(8)))
    assert shown(table, 3.4, "omni_turn_bad_now") == {}
    assert shown(table, 6, "omni_turn_bad_now") == {("0", "starved", "stall"): 1}
    before = table.turns.state.open["a"][0].sent
    assert shown(table, 7, "omni_turn_bad_now") == {("0", "starved", "stall"): 1}
    assert table.turns.state.open["a"][0].sent == before, "looking changes nothing"


def test_speech_on_its_way_is_late_by_the_network():
    table = StreamTable(Settings())
    feed(table, ev.TurnStart(t=T0, stream="a", turn=1, ear="kernel"), audio(0.3, turn=1, dur_ms=1000))
    for n in range(4):
        table.apply(ev.Arrived(t=T0 + 1 + n, stream="a", turn=1, ms=0.0, waiting=9000, rtt_ms=40.0))
    assert shown(table, 4.5, "omni_turn_bad_now") == {("0", "late", "network"): 1}


def test_one_series_a_stream_and_none_without_a_slot():
    table = StreamTable(Settings(streams=Streams(max_streams=3)))
    feed(table, *(asked(0, 1, f"s{n}") for n in range(40)))
    found = shown(table, 5, "omni_turn_bad_now")
    assert sorted(slot for slot, *_ in found) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("chars", "cjk", "side"),
    [
        (40, 0, None),
        (10, 0, None),
        (400, 0, ("short",)),
        (14, 14, None),
        (20, 0, None),
        (120, 120, ("short",)),
        (120, 60, None),
        (120, None, None),
        (200, None, ("short",)),
    ],
)
def test_speech_of_an_odd_length(chars, cjk, side):
    table = StreamTable(Settings())
    feed(table, *a_turn(0, chars=chars, cjk=cjk))
    table.advance(T0 + 40)
    assert shown(table, 40, "omni_turns_odd_length_total") == ({side: 1} if side else {})


def test_speech_far_longer_than_its_text():
    def counted(cjk: int | None) -> Series:
        table = StreamTable(Settings())
        talk = [audio(0.3 + n / 2, turn=1, dur_ms=1000) for n in range(12)]
        end = ended(7, 1)
        end.chars, end.cjk = 25, cjk
        feed(table, asked(0), *talk, end)
        table.advance(T0 + 60)
        return shown(table, 60, "omni_turns_odd_length_total")

    assert counted(0) == {("long",): 1}
    assert counted(25) == counted(None) == {}


def test_how_far_speech_runs_ahead():
    table = StreamTable(Settings())
    feed(table, *a_turn(0, thinking=0.3))
    table.advance(T0 + 1.3)
    assert shown(table, 1.3, "omni_audio_ahead_seconds") == {(): pytest.approx(2.08)}
    table.advance(T0 + 50)
    assert shown(table, 50, "omni_audio_ahead_seconds") == {(): pytest.approx(2.08)}
    assert shown(table, 200, "omni_audio_ahead_seconds") == {}
