"""The tap on the general dialect, against a plain reader of the protocol, on events of the `openai` package's own types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers.openai_events import CLIENT, sessions, type_of
from helpers.realtime_reader import Reader, ReadTurn, Said
from helpers.scripted_tap import REALTIME, Clock, Step, answers, disconnect, says, scope_of
from omniwatch import events as ev
from omniwatch.tap.ear import Ear
from omniwatch.tap.observer import TapContext
from omniwatch.tap.realtime import RealtimeObserver

pytestmark = pytest.mark.slow

CLIENTS = [type_of(model) for model in CLIENT]
TURNS_KNOWN = 8
"""The tap remembers so many turns of a session."""


def steps_of(said: list[Said]) -> list[Step]:
    return [(says if event.get("type") in CLIENTS else answers)(t, **event) for t, event in said]


def turns_of(events: list[Any]) -> list[ReadTurn]:
    """The turns that the tap tells of."""
    turns: dict[Any, ReadTurn] = {}
    for event in events:
        if isinstance(event, (ev.TurnStart, ev.Audio, ev.TurnEnd, ev.Interrupt, ev.Played)):
            turn = turns.setdefault(event.turn, ReadTurn(event.turn))
            if isinstance(event, ev.TurnStart):
                turn.asked_t = event.t
            elif isinstance(event, ev.Audio):
                turn.speech_ms.append(event.dur_ms)
            elif isinstance(event, ev.TurnEnd):
                assert turn.outcome is None, "a turn ends once"
                turn.outcome = event.reason
            elif isinstance(event, ev.Interrupt):
                assert turn.interrupted_t is None, "a turn is interrupted once"
                turn.interrupted_t = event.t
            else:
                turn.truncated_ms.append(event.played_ms)
    return [turns[number] for number in sorted(turns)]


def comparable(turns: list[ReadTurn]) -> list[tuple[Any, ...]]:
    return [
        (
            turn.number,
            turn.asked_t,
            [round(ms, 6) for ms in turn.speech_ms],
            turn.outcome,
            turn.interrupted_t,
            [round(ms, 6) for ms in turn.truncated_ms],
        )
        for turn in turns
    ]


@st.composite
def spoken(draw: Any) -> list[Said]:
    """A session on a clock that stands still, or goes on by less than speech lasts, or by more."""
    t, said = 0.0, []
    for event in draw(sessions()):
        t += draw(st.sampled_from([0.0, 1 / 128, 1 / 64, 2.0]))
        said.append(Said(t, event))
    return said


class Watched:
    """One connection as the tap's observer sees it; `told` is what it says of it."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self._clock = Clock()
        ear = Ear("sent", self.told.append, clock=self._clock, monotonic=self._clock)
        context = TapContext(self.told.append, self._clock, self._clock, ear)
        self._watch = RealtimeObserver(scope_of(REALTIME), context)

    def play(self, steps: list[Step]) -> list[Any]:
        for self._clock.t, direction, message in steps:
            if direction == "in":
                self._watch.received(message)
            else:
                assert self._watch.sent(message) is message
        return self.told


ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(ANY, max_examples=200)
@given(spoken())
def test_turns_durations_and_outcomes_are_those_of_the_protocol(said):
    expected = Reader().read(said)
    assume(len(expected) <= TURNS_KNOWN)
    told = Watched().play([*steps_of(said), disconnect(1000)])
    assert comparable(turns_of(told)) == comparable(expected)


ODD = st.sampled_from([None, True, -1, 2**70, 1e300, "", "x", "\x7f5", [], {}, [{}], {"type": 5}])


@st.composite
def broken(draw: Any) -> list[Said]:
    """A session of which some events have odd values, or lack a field; the greeting, which tells the dialect, is sound."""
    said = []
    for t, event in draw(spoken()):
        damaged = dict(event)
        if event["type"] != "session.created" and draw(st.booleans()):
            name = draw(st.sampled_from([*event]))
            if name == "type" or draw(st.booleans()):
                damaged[name] = draw(ODD)
            else:
                del damaged[name]
        said.append(Said(t, damaged))
    return said


@settings(ANY, max_examples=100)
@given(broken())
def test_odd_values_raise_nothing_and_each_turn_that_begins_ends_once(said):
    told = Watched().play([*steps_of(said), disconnect(1000)])
    assert all(turn.outcome for turn in turns_of(told))
