"""The tap on `WS /v1/realtime` in the general dialect, as OpenAI defines it, and how the dialects are told apart."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from helpers.duplex_session import duplex
from helpers.general_session import (
    add_item,
    ask,
    begin,
    created,
    delta,
    done,
    speech,
    updated,
)
from helpers.scripted_tap import REALTIME, Step, answers, disconnect, opening, pcm16, said, says
from omniwatch import events as ev
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings


def told(tapped: Any, *steps: Step, path: str = REALTIME, **scope: Any) -> list[tuple[Any, ...]]:
    """What the tap says of a session between its begin and its end."""
    tapped.connect([*opening(), *steps, disconnect(90)], path, **scope)
    return said(tapped.events())[1:-1]


def test_a_response_that_was_asked_for(tapped):
    assert told(
        tapped,
        created(0),
        says(1, type="input_audio_buffer.commit"),
        answers(1, type="input_audio_buffer.committed", event_id="e", item_id="i"),
        says(1.5, type="conversation.item.create", item={"type": "message", "role": "user", "content": []}),
        ask(2),
        begin(2.1),
        delta(2.5, 400),
        delta(2.6, 80.5),
        answers(2.7, type="response.output_audio.done", event_id="e", response_id="r1", item_id="i1"),
        done(2.8),
    ) == [
        (2, "turn", 1),
        (2.5, "audio", 1, 400),
        (2.6, "audio", 1, 80.5),
        (2.8, "turn_end", 1, "completed"),
    ], "neither the commit nor the item asks"


VAD = {"type": "server_vad"}
STARTED = {"type": "input_audio_buffer.speech_started", "event_id": "e", "item_id": "i", "audio_start_ms": 0}
STOPPED = {"type": "input_audio_buffer.speech_stopped", "event_id": "e", "item_id": "i", "audio_end_ms": 9}
COMMITTED = {"type": "input_audio_buffer.committed", "event_id": "e", "item_id": "i"}


@pytest.mark.parametrize(
    ("vad", "heard", "turns"),
    [
        (VAD, [STOPPED, COMMITTED], [(1, "turn", 1)]),
        (VAD, [COMMITTED], [(1, "turn", 1)]),
        ({**VAD, "create_response": False}, [STOPPED, COMMITTED], []),
        (None, [STOPPED, COMMITTED], [(1, "turn", 1)]),
        (None, [COMMITTED], []),
        (VAD, [STOPPED, STOPPED], [(1, "turn", 1)]),
        (VAD, [STOPPED, COMMITTED, STOPPED], [(1, "turn", 1)]),
    ],
)
def test_vad_begins_a_turn_where_the_session_lets_it(tapped, vad, heard, turns):
    events = told(
        tapped, created(0, turn_detection=vad), *(answers(1 + n, **one) for n, one in enumerate(heard))
    )
    assert events == [*turns, *((90, "turn_end", 1, "aborted") for _ in turns)]


@pytest.mark.parametrize(
    ("form", "ms"),
    [
        ({"type": "audio/pcm", "rate": 24_000}, 100),
        ({"type": "audio/pcmu"}, 600),
        ({"type": "audio/pcma"}, 600),
        ("pcm16", 100),
        ("g711_ulaw", 600),
        ("g711_alaw", 600),
    ],
)
@pytest.mark.parametrize("where", ["session", "response"])
def test_the_length_is_by_the_format_that_is_stated(tapped, form, ms, where):
    stated = speech(form)
    events = told(
        tapped,
        created(0, **(stated if where == "session" else {})),
        ask(1),
        begin(1, **(stated if where == "response" else {})),
        delta(2, 100),
        done(3),
    )
    assert events[1] == (2, "audio", 1, ms)


def test_speech_of_g711_is_not_taken_for_silence(tapped):
    tapped.connect(
        [*opening(), created(0, **speech({"type": "audio/pcmu"})), delta(1, 100), disconnect(2)], REALTIME
    )
    assert [event.silent for event in tapped.events() if isinstance(event, ev.Audio)] == [None]


def test_a_format_that_is_not_known_counts_no_length_and_is_told_once(tapped, caplog):
    caplog.set_level(logging.WARNING)
    steps = [
        created(0, **speech({"type": "audio/opus"})),
        updated(0, **speech({"type": "audio/opus"})),
        ask(1),
        begin(1),
        delta(2, 100),
        done(3),
    ]
    assert told(tapped, *steps) == [(1, "turn", 1), (3, "turn_end", 1, "unmeasured")]
    assert [record.getMessage() for record in caplog.records] == [
        "speech in a format that is not known counts no length: 'audio/opus'"
    ]


@pytest.mark.parametrize(
    ("status", "why", "outcome"),
    [
        ("completed", None, "completed"),
        ("failed", None, "failed"),
        ("cancelled", "turn_detected", "interrupted"),
        ("cancelled", "client_cancelled", "cancelled"),
        ("incomplete", "max_output_tokens", "incomplete"),
    ],
)
def test_how_a_turn_ends(tapped, status, why, outcome):
    details = {"status_details": {"type": status, "reason": why}} if why else {}
    events = told(tapped, created(0), ask(1), begin(1), delta(2, 80), done(3, status=status, **details))
    assert events[-1] == (3, "turn_end", 1, outcome)


@pytest.mark.parametrize(
    ("first", "outcome"),
    [
        (answers(2, **STARTED), "interrupted"),
        (says(2, type="response.cancel"), "cancelled"),
    ],
)
def test_who_had_an_answer_stopped_first_says_how_it_ended(tapped, first, outcome):
    """vLLM-Omni gives the same reason where VAD cuts an answer off as where the client does."""
    why = {"type": "cancelled", "reason": "client_cancelled"}
    events = told(
        tapped,
        *(created(0), ask(1), begin(1), delta(1.5, 4000), first),
        *(says(2.1, type="response.cancel"), answers(2.2, **STARTED)),
        done(2.3, status="cancelled", status_details=why),
    )
    assert events[2:] == [(2, "interrupt"), (2.3, "turn_end", 1, outcome)]


@pytest.mark.parametrize("sent_ms", [0, 100])
def test_an_end_that_names_the_user_is_an_interruption_before_anybody_says_that_she_speaks(tapped, sent_ms):
    """In the order of Hugging Face's speech-to-speech."""
    why = {"type": "cancelled", "reason": "turn_detected"}
    events = told(
        tapped,
        *(created(0), answers(1, **STOPPED), begin(1), delta(1.5, sent_ms)),
        *(done(2, status="cancelled", status_details=why), answers(2, **STARTED)),
    )
    assert events[-2:] == [(2, "interrupt"), (2, "turn_end", 1, "interrupted")]


def test_who_goes_on_before_there_is_an_answer_waits_from_when_she_stops(tapped):
    """As where noise is taken for speech: the server answers what comes next."""
    events = told(
        tapped,
        *(created(0), answers(1, **STARTED), answers(2, **STOPPED), answers(8, **STARTED)),
        *(answers(9, **STOPPED), begin(9.2), delta(9.5, 80), done(9.6)),
    )
    assert events == [
        *((2, "turn", 1), (8, "interrupt"), (9, "turn_end", 1, "interrupted")),
        *((9, "turn", 2), (9.5, "audio", 2, 80), (9.6, "turn_end", 2, "completed")),
    ]


def test_an_error_without_a_code_is_counted_by_its_type(tapped):
    error = {"type": "session_limit_reached", "message": "one session", "code": None}
    tapped.connect([*opening(), created(0), answers(1, type="error", error=error), disconnect(2)], REALTIME)
    assert [event.code for event in tapped.events() if isinstance(event, ev.Fault)] == [
        "session_limit_reached"
    ]


def test_an_error_ends_the_turn_of_the_event_that_it_names_and_no_other(tapped):
    def error(t: float, event: str | None, code: str) -> Step:
        return answers(
            t, type="error", event_id="x", error={"type": "invalid", "code": code, "event_id": event}
        )

    tapped.connect(
        [
            *opening(),
            created(0),
            ask(1, event_id="one"),
            error(1.1, None, "rate_limit_exceeded"),
            begin(1.2),
            delta(2, 80),
            ask(3, event_id="two"),
            error(3.1, "two", "response_already_active"),
            error(3.2, "three", "response_already_active"),
            done(4),
            disconnect(5),
        ],
        REALTIME,
    )
    events = tapped.events()
    assert [event for event in said(events) if event[1] in ("turn", "turn_end")] == [
        (1, "turn", 1),
        (3, "turn", 2),
        (3.1, "turn_end", 2, "failed"),
        (4, "turn_end", 1, "completed"),
    ]
    assert [event.code for event in events if isinstance(event, ev.Fault)] == [
        "rate_limit_exceeded",
        "response_already_active",
        "response_already_active",
    ]


@pytest.mark.parametrize("speaks", [True, False])
def test_a_response_of_no_conversation_answers_no_turn_that_waits(tapped, speaks):
    events = told(
        tapped,
        created(0),
        says(1, type="response.create", response={"conversation": "none"}),
        answers(1.1, **STOPPED),
        begin(1.2, "aside", conversation_id=None),
        *([delta(1.3, 80, "aside")] if speaks else []),
        done(1.4, "aside"),
        begin(1.5, "r1"),
        delta(2, 80, "r1"),
        done(3, "r1"),
    )
    own = [(1.3, "audio", 2, 80), (1.4, "turn_end", 2, "completed")] if speaks else []
    assert events == [(1.1, "turn", 1), *own, (2, "audio", 1, 80), (3, "turn_end", 1, "completed")]


CALL = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}"}


def test_a_call_of_a_tool_ends_a_turn_that_nobody_counts_and_the_next_answers(tapped):
    events = told(
        tapped,
        created(0),
        answers(1, **STOPPED),
        begin(1.1),
        answers(1.2, type="response.function_call_arguments.delta", response_id="r1", delta="{}"),
        done(1.3, output=[CALL]),
        says(2, type="conversation.item.create", item={"type": "function_call_output", "output": "{}"}),
        ask(2.1),
        begin(2.2, "r2"),
        delta(3, 80, "r2"),
        done(4, "r2"),
    )
    assert events == [
        (1, "turn", 1),
        (1.3, "turn_end", 1, "called"),
        (2.1, "turn", 2),
        (3, "audio", 2, 80),
        (4, "turn_end", 2, "completed"),
    ]


@pytest.mark.parametrize(
    "session", [{"type": "transcription"}, {"type": "translation"}, {"output_modalities": ["text"]}]
)
def test_a_session_that_does_not_speak_has_no_turns(tapped, session):
    steps = [created(0, **session), answers(1, **STOPPED), ask(2), begin(2.1), done(3)]
    assert told(tapped, *steps) == []


def test_a_truncated_answer_is_interrupted_and_heard_up_to_there(tapped):
    events = told(
        tapped,
        created(0),
        ask(1),
        begin(1),
        add_item(1.1, "first"),
        delta(1.2, 1000),
        add_item(1.3, "second"),
        delta(1.4, 3000),
        answers(2, **STARTED),
        says(2.1, type="conversation.item.truncate", item_id="second", content_index=0, audio_end_ms=250),
        says(2.1, type="conversation.item.truncate", item_id="unknown", content_index=0, audio_end_ms=9),
        delta(2.2, 80),
        done(2.3, status="completed"),
    )
    assert events[3:] == [
        (2, "interrupt"),
        (2.1, "played", 1, 1250),
        (2.2, "audio", 1, 80),
        (2.3, "turn_end", 1, "interrupted"),
    ], "the first item's 1000 ms come before the second's"


@pytest.mark.parametrize("by", ["client", "server"])
def test_a_cleared_buffer_is_an_interruption_where_the_clock_has_come(tapped, by):
    clear = (
        says(2, type="output_audio_buffer.clear")
        if by == "client"
        else answers(2, type="output_audio_buffer.cleared", event_id="e", response_id="r1")
    )
    events = told(tapped, created(0), ask(1), begin(1), delta(1.25, 3000), clear, clear, done(3))
    assert events[2:] == [(2, "interrupt"), (2, "played", 1, 750), (3, "turn_end", 1, "interrupted")]


def test_who_cancels_speaks_up_once_a_turn_and_only_while_there_is_something_to_hear(tapped):
    events = told(
        tapped,
        created(0),
        says(0.5, type="response.cancel"),
        ask(1),
        begin(1),
        delta(2, 1000),
        says(2.5, type="response.cancel"),
        answers(2.6, **STARTED),
        done(2.7, status="cancelled"),
        ask(3),
        begin(3, "r2"),
        delta(3, 500, "r2"),
        done(3.1, "r2"),
        answers(3.4, **STARTED),
        answers(3.6, **STARTED),
        ask(4),
        begin(4, "r3"),
        delta(4, 500, "r3"),
        done(4.1, "r3"),
        answers(4.6, **STARTED),
    )
    assert [event[0] for event in events if event[1] == "interrupt"] == [2.5, 3.4]


def test_what_was_said_before_the_dialect_was_known_is_read_again_as_of_then(tapped):
    events = told(
        tapped,
        says(1, type="response.create"),
        answers(2, type="conversation.created", event_id="e", conversation={"id": "c"}),
        delta(3, 80),
        done(4),
    )
    assert events == [(1, "turn", 1), (3, "audio", 1, 80), (4, "turn_end", 1, "completed")]


def test_a_session_whose_dialect_never_shows_is_one_by_turns(tapped):
    assert (
        told(tapped, says(1, type="input_audio_buffer.commit"), says(2, type="input_audio_buffer.commit"))
        == []
    )
    assert tapped.tap is not None


@pytest.mark.parametrize(("numbered", "turns"), [(True, 1), (False, 0)])
def test_a_greeting_that_fits_two_dialects_waits_for_the_servers_next_word(tapped, numbered, turns, caplog):
    """A duplex session of 0.30 greets as the general protocol does; its events are numbered."""
    caplog.set_level(logging.WARNING)
    seq = {"server_event_seq": 2} if numbered else {}
    events = told(
        tapped,
        created(0),
        says(1, type="input_audio_buffer.commit"),
        answers(1.1, type="input_audio_buffer.committed", event_id="e", item_id="i", **seq),
        query_string=b"model=m&duplex=1",
    )
    assert [event[1] for event in events].count("turn") == turns, "in a duplex session a commit asks"
    fell_back = [record for record in caplog.records if "duplex=1" in record.getMessage()]
    assert len(fell_back) == (0 if numbered else 1)


def test_a_duplex_session_as_0_30_greets_is_no_general_one(tapped):
    greeting = answers(
        0,
        type="session.created",
        event_id="e",
        session={"id": "s" * 20, "object": "realtime.session", "type": "realtime", "state": "open"},
        resume_token="t",
    )
    events = told(tapped, greeting, says(1, type="input.commit"), duplex(2, 320, 5, encoding="opus"))
    assert events[:2] == [(1, "turn", 1), (2, "audio", 1, 320)]


def test_odd_fields_are_passed_over(tapped):
    assert told(
        tapped,
        created(0),
        answers(1, type="session.updated", session="odd"),
        answers(1, type="session.updated", session={"audio": [], "turn_detection": 5, "modalities": {}}),
        answers(1, type="response.created", response=[]),
        answers(1, type="response.output_item.added", item=5, response_id="r1"),
        answers(1, type="response.done", response={"status": 5, "output": "x"}),
        answers(1, type="error", error="odd"),
        answers(1, type="response.output_audio.delta", response_id="r9", delta="%%"),
        answers(1, type="mcp_list_tools.failed", item_id="i"),
    ) == [(1, "fault")]


def test_a_long_delta_is_measured_unread(tapped):
    audio = base64.b64encode(b"\1" * 480_000).decode()
    long = answers(2, type="response.output_audio.delta", response_id="r1", item_id="i", delta=audio)
    assert told(tapped, created(0), ask(1), begin(1), long, done(3))[1] == (2, "audio", 1, 10_000)
    assert pcm16(1)


@pytest.mark.parametrize("goes_on_s", [0.0, 0.35, 1.2])
@pytest.mark.parametrize("truncates", [True, False])
def test_how_long_a_server_goes_on_after_the_user_spoke_up_is_measured_to_5_ms(tapped, goes_on_s, truncates):
    """By either dialect's way of saying it; a truncated answer has neither underrun nor drift."""
    late = [delta(2 + n * 0.05, 50) for n in range(1, round(goes_on_s / 0.05) + 1)]
    cut = says(2.001, type="conversation.item.truncate", item_id="i1", content_index=0, audio_end_ms=400)
    steps = [ask(1), begin(1), add_item(1, "i1"), delta(1.5, 900), answers(2, **STARTED)]
    tapped.connect(
        [
            *opening(),
            created(0),
            *steps,
            *([cut] if truncates else []),
            *late,
            done(4, status="cancelled", status_details={"type": "cancelled", "reason": "turn_detected"}),
            answers(5, **STOPPED),
            begin(5.1, "r2"),
            delta(5.6, 500, "r2"),
            disconnect(6),
        ],
        REALTIME,
    )
    table = StreamTable(Settings())
    for event in tapped.events():
        table.apply(event)
    totals = table.totals
    assert totals.interruption_stale.sum == pytest.approx(goes_on_s, abs=0.005)
    assert totals.interruption_answer.sum == pytest.approx(0.6, abs=0.005)
    unheard_s = 0.5 if truncates else 0.48
    assert totals.interruption_unheard.sum == pytest.approx(unheard_s, abs=0.005), (
        "by the ear, 80 ms were held back"
    )
    assert totals.turns["interrupted"] == 1
    if truncates:
        assert totals.audio_underrun_seconds == 0
        assert totals.turn_drift_worst.sum == 0
