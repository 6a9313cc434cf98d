"""What an interruption costs: speech that comes after it, speech that was not heard, and the wait for the next answer."""

from __future__ import annotations

import pytest

from helpers.events import T0, asked, audio, ended, feed, outcomes, table, video
from omniwatch import events as ev
from omniwatch.core.streams import StreamTable


def spoke_up(at: float, turn: int = 1) -> ev.Interrupt:
    return ev.Interrupt(t=T0 + at, stream="a", turn=turn)


def cut_off(at: float, played_ms: float, turn: int = 1) -> ev.Played:
    return ev.Played(t=T0 + at, stream="a", turn=turn, played_ms=played_ms, source="framework")


def figures(live: StreamTable, what: str) -> tuple[int, float]:
    """How often it was observed, and the sum in seconds."""
    histogram = getattr(live.totals, f"interruption_{what}")
    return sum(histogram.counts), pytest.approx(histogram.sum, abs=1e-6)


@pytest.mark.parametrize("goes_on_s", [0.0, 0.3, 1.9])
def test_speech_after_the_user_spoke_up_is_stale_until_its_last_chunk(goes_on_s):
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0), spoke_up(1))
    for n in range(round(goes_on_s * 10)):
        feed(live, audio(1.1 + n / 10, turn=1, dur_ms=100.0))
    assert figures(live, "stale") == (0, 0), "not before the turn ends"
    feed(live, ended(4, 1, "interrupted"))
    assert figures(live, "stale") == (1, goes_on_s)
    assert outcomes(live) == {"interrupted": 1}


@pytest.mark.parametrize("end", [asked(4, 2), ev.StreamEnd(t=T0 + 4, stream="a", reason="disconnect")])
def test_a_turn_that_ends_without_a_word_is_counted_once(end):
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0), spoke_up(1), audio(1.5, turn=1, dur_ms=100.0))
    feed(live, end)
    if isinstance(end, ev.TurnStart):
        feed(live, audio(4.5, turn=2), ended(5, 2))
    assert figures(live, "stale") == (1, 0.5)


def test_what_was_sent_and_not_heard_is_what_the_client_throws_away():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0), ended(0.6), spoke_up(1.58))
    assert figures(live, "unheard") == (0, 0), "the client may say it better"
    feed(live, asked(2, 2))
    assert figures(live, "unheard") == (1, 2.0), "1 s of it was heard, after a playout buffer of 80 ms"
    assert figures(live, "stale") == (1, 0.0), "the server had ended it"


@pytest.mark.parametrize("is_over", [True, False])
def test_a_truncation_says_better_what_was_not_heard(is_over):
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0))
    feed(live, *([ended(0.6)] if is_over else []), spoke_up(1.58), audio(1.6, turn=1, dur_ms=500.0))
    feed(live, cut_off(1.7, 800), asked(2, 2), audio(2.5, turn=2, dur_ms=100.0), ended(3, 2))
    assert figures(live, "unheard") == (1, 2.2), "of what had been sent when the user spoke up"


def test_a_guess_by_the_clock_says_no_better_than_the_ear_what_was_not_heard():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0), spoke_up(1.58))
    feed(live, ev.Played(t=T0 + 1.58, stream="a", turn=1, played_ms=1080.0, source="model"))
    assert figures(live, "unheard") == (1, 2.0)


def test_the_next_answer_after_an_interruption_is_counted_apart():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=3000.0), spoke_up(1), ended(1.1, 1, "interrupted"))
    feed(live, asked(2, 2), audio(2.7, turn=2, dur_ms=100.0), ended(3, 2))
    feed(live, asked(5, 3), audio(5.4, turn=3, dur_ms=100.0), ended(6, 3))
    assert figures(live, "answer") == (1, 0.7)
    assert sum(live.totals.token_rtt["server"].counts) == 3, "there as well"


def test_who_speaks_up_before_the_answer_begins_heard_nothing():
    live = table()
    feed(live, asked(0), spoke_up(0.3), ended(0.4, 1, "interrupted"))
    feed(live, asked(1, 2), audio(1.5, turn=2, dur_ms=100.0))
    assert figures(live, "unheard") == figures(live, "stale") == (1, 0.0)
    assert figures(live, "answer") == (1, 0.5)


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_that_answers_all_the_same_is_stale_from_when_the_user_spoke_up(answers):
    live = table()
    feed(live, asked(0), spoke_up(0.3), spoke_up(0.35))
    if answers:
        feed(live, *(audio(0.5 + n / 10, turn=1, dur_ms=100.0) for n in range(5)))
    assert figures(live, "stale") == (0, 0), "not before the turn ends"
    feed(live, ended(2, 1, "interrupted"))
    assert figures(live, "stale") == (1, 0.6 if answers else 0.0)
    assert figures(live, "unheard") == (1, 0.0)
    feed(live, asked(3, 2), spoke_up(3.1, 2), asked(3.2, 3), audio(3.4, turn=3), ended(4, 3))
    assert figures(live, "stale") == (2, 0.6 if answers else 0.0), (
        "also where the next question takes its place"
    )
    assert figures(live, "answer") == (1, 0.2), "only the third was answered"


def test_what_a_truncation_cuts_off_is_no_underrun_and_no_drift():
    live = table()
    feed(live, video(0, 0), asked(0), audio(0.5, turn=1, dur_ms=1000.0), spoke_up(1), cut_off(1.05, 400))
    stream = feed(live, *(video(n / 2, n * 500) for n in range(3, 12)))
    samples = sum(live.totals.codec_drift_abs.counts)
    feed(live, audio(6, turn=1, dur_ms=100.0), video(6.5, 6500), ended(7, 1, "interrupted"))
    assert live.totals.audio_underrun_seconds == 0
    assert sum(live.totals.codec_drift_abs.counts) == samples
    assert live.drift_ms(stream, T0 + 6) is None
    assert stream.silent_s(T0 + 6) == 0, "nobody waits for it"
    assert figures(live, "stale") == (1, 5.0)
    assert live.totals.audio_seconds == pytest.approx(1.1), "it was sent all the same"
    assert outcomes(live) == {"interrupted": 1}


def test_a_guess_without_an_interruption_cuts_nothing_off():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=1000.0), cut_off(1, 400), audio(3, turn=1, dur_ms=100.0))
    assert live.totals.audio_underrun_seconds == pytest.approx(1.42)


def test_an_interruption_of_a_turn_that_is_over_counts_nothing():
    live = table()
    feed(live, asked(0), audio(0.5, turn=1, dur_ms=100.0), ended(0.6), asked(5, 2), spoke_up(6))
    assert [figures(live, what)[0] for what in ("stale", "unheard", "answer")] == [0, 0, 0]
