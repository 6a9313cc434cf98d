"""How long an answer's round trip is shown: that one or two late ones never page, that three do, and whose word counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from omniwatch import events as ev
from omniwatch.core.answers import Lateness
from omniwatch.core.rule_states import Span, rule_states
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Alerts, Settings

T0 = 1_700_000_000.0
LATE_MS, IN_TIME_MS = 900.0, 300.0
ALERTS = Alerts()


def dialogue(
    *answers: tuple[float, float], reports: tuple[tuple[float, float, int], ...] = ()
) -> list[ev.Event]:
    """Answers as (when the text came, ms until speech), turns 0, 1, 2 …; reports as (when, ms, turn)."""
    found: list[ev.Event] = []
    for turn, (asked_t, rtt_ms) in enumerate(answers):
        first_t = T0 + asked_t + rtt_ms / 1000
        found += [
            ev.TurnStart(t=T0 + asked_t, stream="a", turn=turn),
            ev.Audio(t=first_t, stream="a", turn=turn),
            ev.TurnEnd(t=first_t + 0.05, stream="a", turn=turn, reason="completed"),
        ]
    found += [ev.Rtt(t=T0 + t, stream="a", turn=turn, rtt_ms=rtt_ms) for t, rtt_ms, turn in reports]
    return sorted(found, key=lambda event: event.t)


def stated(times: list[float], rtt_ms: float = LATE_MS) -> list[ev.Event]:
    """The reports of a server that states a round trip and nothing else."""
    return [ev.Rtt(t=T0 + t, stream="a", rtt_ms=rtt_ms) for t in times]


def scrapes(
    events: list[ev.Event], until_s: float, alerts: Alerts = ALERTS
) -> list[tuple[float, float | None, str]]:
    """What each scrape shows, by second: the round trip and its vantage."""
    live, found, left = StreamTable(Settings(alerts=alerts)), [], list(events)
    at = 0.0
    while at <= until_s:
        while left and left[0].t <= T0 + at:
            live.apply(left.pop(0))
        live.advance(T0 + at)
        stream = live.state.streams.get("a")
        found.append(
            (at, live.rtt_ms(stream, T0 + at), stream.answers.vantage) if stream else (at, None, "server")
        )
        at += alerts.scrape_interval_s
    return found


def fired(
    shown: list[tuple[float, float | None, str]], phase: int = 0, alerts: Alerts = ALERTS
) -> list[float]:
    """When TokenRTT begins to fire of either vantage, the rules evaluated at phase, phase + 5 s …"""
    begins = []
    for vantage in ("client", "server"):
        samples = [(at - phase, value if who == vantage else None) for at, value, who in shown]
        spans = rule_states(samples, alerts.rtt_page_ms, alerts.rtt_for_s, alerts.evaluation_interval_s)
        begins += [span.start_t + phase for span in spans if span.state == "firing"]
    return sorted(begins)


@pytest.mark.parametrize("phase", range(5))
@pytest.mark.parametrize("gap_s", [1, 4, 6, 8, 12, 13, 14, 15, 16, 19, 21, 25, 30, 45, 58])
def test_two_late_answers_never_page_whatever_the_gap(gap_s, phase):
    assert fired(scrapes(dialogue((3, LATE_MS), (3 + gap_s, LATE_MS)), 200), phase) == []


@pytest.mark.parametrize("phase", range(5))
@pytest.mark.parametrize("gap_s", [1, 4, 6, 8, 12, 15, 21, 30, 45, 58])
def test_three_late_answers_in_a_row_page_within_the_rules_for_of_the_last_or_a_gap_later(gap_s, phase):
    third_s = 3 + 2 * gap_s + LATE_MS / 1000
    (begin,) = fired(scrapes(dialogue(*((3 + n * gap_s, LATE_MS) for n in range(3))), 300), phase)
    assert begin <= third_s + 10 + 20 + 6
    if 2 * gap_s < 14:
        assert begin <= 3.9 + 20 + 6, "the row stood before its first was hidden"


@pytest.mark.parametrize("phase", range(5))
def test_late_answers_with_one_in_time_between_them_do_not_page(phase):
    pattern = [LATE_MS, LATE_MS, IN_TIME_MS] * 12
    for gap_s in (2, 5, 7, 11):
        talk = dialogue(*((n * gap_s, rtt_ms) for n, rtt_ms in enumerate(pattern)))
        assert fired(scrapes(talk, 500), phase) == []


def test_a_server_that_states_a_round_trip_for_every_token_pages_after_exactly_for():
    shown = scrapes(stated([10 + n * 0.08 for n in range(500)]), 60)
    assert fired(shown) == [30.0]


def test_of_two_late_answers_the_first_is_shown_for_14_s_and_then_none():
    shown = scrapes(dialogue((10, LATE_MS), (16, LATE_MS)), 60)
    assert [at for at, value, _ in shown if value] == list(range(11, 25))


def test_an_answer_in_time_is_shown_until_the_stream_is_stale():
    shown = scrapes(dialogue((10, LATE_MS), (40, IN_TIME_MS)), 200)
    assert [at for at, value, _ in shown if value] == [*range(11, 25), *range(41, 101)]


def test_a_row_that_is_complete_is_shown_as_any_other():
    shown = scrapes(dialogue((10, LATE_MS), (30, LATE_MS), (50, LATE_MS)), 200)
    assert [at for at, value, _ in shown if value] == [*range(11, 25), *range(51, 111)]


def test_a_row_that_is_complete_right_after_it_was_hidden_is_absent_for_two_evaluations_first():
    shown = scrapes(dialogue((10, LATE_MS), (20, LATE_MS), (25, LATE_MS)), 70)
    absent = [at for at, value, _ in shown if at > 10 and value is None]
    assert absent == list(range(25, 35))


@given(
    st.lists(st.tuples(st.floats(0.3, 40), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 4),
)
@hypothesis_settings(max_examples=150)
def test_whatever_the_dialogue_only_three_in_a_row_page_and_a_lasting_row_does(gaps, phase):
    at, talk = 0.0, []
    for gap_s, late in gaps:
        at += gap_s + 1
        talk.append((at, LATE_MS if late else IN_TIME_MS))
    begins = fired(scrapes(dialogue(*talk), at + 120), phase)
    rows, late_since = [], []
    for asked_t, rtt_ms in [*talk, (at + 500, IN_TIME_MS)]:
        if rtt_ms > 800:
            late_since.append(asked_t + rtt_ms / 1000)
            continue
        if len(late_since) >= 3:
            rows.append((late_since[2], asked_t + rtt_ms / 1000))
        late_since = []
    for begin in begins:
        assert any(third <= begin <= over + 6 for third, over in rows), (begin, rows)
    for third, over in rows:
        if over - third > 10 + 20 + 7:
            assert any(third <= begin <= third + 37 for begin in begins), (third, over, begins)


def test_with_a_for_of_two_evaluations_or_less_each_answer_is_shown_at_once():
    alerts = Alerts(rtt_for_s=10)
    shown = scrapes(dialogue((10, LATE_MS)), 100, alerts)
    assert [at for at, value, _ in shown if value] == list(range(11, 71))
    assert Lateness.of(800, 10, 3, evaluation_s=5, scrape_s=1) == Lateness.of(
        800, 99, 1, evaluation_s=5, scrape_s=1
    )


def counted(shown: list[tuple[float, float | None, str]]) -> list[tuple[float | None, str]]:
    """What was shown, each change once."""
    words = [(None if value is None else round(value), vantage) for _, value, vantage in shown if value]
    return [word for n, word in enumerate(words) if n == 0 or words[n - 1] != word]


def test_the_clients_word_replaces_the_servers_and_counts_once():
    talk = dialogue((1, LATE_MS), (3, LATE_MS), reports=((2.5, 950, 0), (4.5, 960, 1)))
    assert fired(scrapes(talk, 100)) == []
    talk = dialogue(
        (1, LATE_MS), (3, LATE_MS), (5, LATE_MS), reports=((2.5, 950, 0), (4.5, 960, 1), (6.5, 970, 2))
    )
    assert len(fired(scrapes(talk, 100))) == 1


def test_a_report_that_is_repeated_counts_once():
    talk = dialogue((1, LATE_MS), reports=tuple((2.5 + n, 950, 0) for n in range(12)))
    assert fired(scrapes(talk, 100)) == []


def test_a_client_that_reports_once_and_never_again_hides_no_late_answers():
    talk = dialogue((1, 300), *((5 + 6 * n, 3000) for n in range(4)), reports=((1.5, 312, 0),))
    shown = scrapes(talk, 80)
    assert counted(shown)[0] == (312, "client")
    assert {round(value) for at, value, who in shown if who == "server" and value and at > 10} == {3000}
    assert len(fired(shown)) == 1


def test_one_late_report_does_not_stick():
    talk = dialogue(*((1 + 5 * n, 300) for n in range(8)), reports=((1.5, 3000, 0),))
    shown = scrapes(talk, 60)
    assert fired(shown) == []
    assert counted(shown) == [(3000, "client"), (300, "server")]


def test_one_answer_that_the_client_did_not_report_counts_by_the_servers_estimate():
    talk = dialogue((1, LATE_MS), (4, LATE_MS), (7, LATE_MS), reports=((2.5, 950, 0), (8.5, 970, 2)))
    assert len(fired(scrapes(talk, 100))) == 1, "client, server, client: three late in a row"


def test_a_report_that_comes_before_the_first_speech_is_known_counts_once():
    talk = dialogue((1, LATE_MS), (3, LATE_MS), reports=((1.5, 950, 0), (3.5, 950, 1)))
    shown = scrapes(talk, 100)
    assert fired(shown) == []
    assert counted(shown) == [(950, "client")]


def test_a_clock_that_is_set_back_takes_the_row_along():
    live = StreamTable(Settings())
    for event in dialogue((1000, LATE_MS)):
        live.apply(event)
    stream = live.state.streams["a"]
    stream.set_back(900)
    assert live.rtt_ms(stream, T0 + 110) == pytest.approx(LATE_MS)
    assert live.rtt_ms(stream, T0 + 116) is None


def test_a_stated_drift_is_shown_for_9_s_and_a_modelled_one_while_it_is_heard():
    live = StreamTable(Settings())
    live.apply(ev.Audio(t=T0, stream="a", pts_ms=0.0, video_pts_ms=100.0))
    live.apply(ev.Audio(t=T0, stream="b", turn=1, dur_ms=2000.0))
    live.apply(ev.TurnEnd(t=T0 + 0.1, stream="b", turn=1, reason="completed"))
    stated_, modelled = live.state.streams["a"], live.state.streams["b"]
    assert [live.drift_ms(stated_, T0 + t) for t in (8.9, 9)] == [-100, None]
    assert live.drift_ms(modelled, T0 + 2.07) == pytest.approx(0, abs=1e-3)
    assert live.drift_ms(modelled, T0 + 2.09) is None


@pytest.mark.parametrize("phase", range(5))
def test_a_drift_that_was_stated_once_does_not_page(phase):
    live = StreamTable(Settings())
    live.apply(ev.Audio(t=T0 + 3, stream="a", pts_ms=0.0, video_pts_ms=100.0))
    stream = live.state.streams["a"]
    samples = [(float(at - phase), abs(live.drift_ms(stream, T0 + at) or 0) or None) for at in range(3, 60)]
    spans = rule_states(samples, 60, 15, 5)
    assert [span.state for span in spans] == ["pending"]
    assert isinstance(spans[0], Span)
