"""The tap on duplex sessions: `WS /v1/realtime?duplex=1` and `/v1/duplex`."""

from __future__ import annotations

import pytest

from helpers.duplex_session import SESSION, commit, created, done, duplex, hit, keyed, resume, resumed
from helpers.scripted_tap import (
    REALTIME,
    acted,
    answers,
    disconnect,
    opening,
    pcm16,
    said,
    says,
)
from omniwatch import events as ev
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings


def test_a_duplex_conversation(tapped):
    tapped.connect(
        [
            *opening(),
            says(1, type="session.update", session={"model": "m"}),
            created(1),
            says(2, type="input_audio_buffer.append", audio=pcm16(200)),
            commit(3),
            answers(3.1, type="input_audio_buffer.committed"),
            answers(3.2, type="response.created", response_id="r1", response={"id": "r1"}),
            duplex(4, 297, 296.875),
            says(4.5, type="playback.ack", played_ms=200, response_id="r1"),
            duplex(5, 2297, 2000),
            says(5.5, type="playback.ack", played_ms=900),
            says(5.6, type="audio.playback_ack", played_ms=1000, item_id="item_r1"),
            *done(6),
            says(6.5, type="playback.ack", played_ms=2296, response_id="r1"),
            says(6.6, type="playback.ack", played_ms=10, response_id="unknown"),
            says(
                6.7, type="conversation.item.truncate", item_id="item_r1", content_index=0, audio_end_ms=950
            ),
            says(6.8, type="conversation.item.truncate", item_id="item_r1", content_index=0),
            disconnect(7),
        ],
        REALTIME,
    )
    events = tapped.events()
    assert said(events) == [
        (1, "stream_start"),
        (3, "turn", 1),
        (4, "audio", 1, 296.875),
        (4.5, "played", 1, 200),
        (5, "audio", 1, 2000),
        (5.5, "played", 1, 900),
        (5.6, "played", 1, 1000),
        (6, "turn_end", 1, "completed"),
        (6.5, "played", 1, 2296),
        (6.7, "interrupt"),
        (6.7, "played", 1, 950),
        (7, "stream_end", "disconnect"),
    ]
    sources = [event.source for event in events if isinstance(event, ev.Played)]
    assert sources == [*["player"] * 4, "framework"], "what a client cut off is its framework's guess"


def test_the_stated_position_counts_where_the_size_does_not_tell(tapped):
    tapped.connect(
        [
            *opening(),
            created(1),
            commit(2),
            duplex(3, 320, 5, encoding="opus"),
            duplex(4, 2320, 7, encoding="opus"),
            disconnect(5),
        ],
        "/v1/duplex",
    )
    assert said(tapped.events())[2:4] == [(3, "audio", 1, 320), (4, "audio", 1, 2000)]


@pytest.mark.parametrize(
    ("asking", "turns"),
    [
        ([commit(2, final=False)], 0),
        ([commit(2, response_create=False)], 0),
        ([commit(2, create_response=False)], 0),
        ([commit(2), says(2.1, type="response.create")], 1),
        ([says(2, type="conversation.item.create", item={}), says(2.1, type="response.create")], 1),
        (
            [
                answers(2, type="input_audio_buffer.speech_started"),
                answers(2.2, type="input_audio_buffer.speech_stopped"),
            ],
            1,
        ),
    ],
)
def test_what_asks_in_a_duplex_session(tapped, asking, turns):
    tapped.connect([*opening(), created(1), *asking, disconnect(3)], REALTIME)
    assert [event[1] for event in said(tapped.events())].count("turn") == turns


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("completed", "completed"),
        ("cancelled", "aborted"),
        ("failed", "failed"),
        ("incomplete", "incomplete"),
    ],
)
def test_how_a_response_ended(tapped, status, outcome):
    tapped.connect(
        [*opening(), created(1), commit(2), duplex(3, 80, 80), *done(4, status=status), disconnect(5)],
        REALTIME,
    )
    table = StreamTable(Settings())
    for event in tapped.events():
        table.apply(event)
    assert {name: n for name, n in table.totals.turns.items() if n} == {outcome: 1}


def test_the_model_may_go_on_listening(tapped):
    tapped.connect(
        [*opening(), created(1), commit(2), answers(3, type="response.listen"), disconnect(4)], REALTIME
    )
    assert said(tapped.events())[1:3] == [(2, "turn", 1), (3, "turn_end", 1, "listen")]


def test_speech_unasked_and_responses_that_overlap(tapped):
    tapped.connect(
        [
            *opening(),
            created(1),
            duplex(2, 80, 80, "r1"),
            commit(3),
            answers(3.1, type="response.created", response_id="r2", response={"id": "r2"}),
            duplex(3.2, 160, 80, "r1"),
            duplex(4, 80, 80, "r2"),
            *done(4.5, "r1", "cancelled"),
            duplex(5, 160, 80, "r2"),
            *done(6, "r2"),
            disconnect(7),
        ],
        REALTIME,
    )
    assert said(tapped.events())[1:-1] == [
        (2, "audio", 1, 80),
        (3, "turn", 2),
        (3.2, "audio", 1, 80),
        (4, "audio", 2, 80),
        (4.5, "turn_end", 1, "cancelled"),
        (5, "audio", 2, 80),
        (6, "turn_end", 2, "completed"),
    ]


def test_a_client_that_comes_back_takes_its_stream_up_again(tapped):
    tapped.connect(
        [*opening(), created(1), commit(2), duplex(3, 2000, 2000), duplex(3.5, 4000, 2000), disconnect(4)],
        REALTIME,
    )
    again = [
        *opening(8.5),
        resume(9),
        resumed(9.25),
        duplex(9.3, 4000, 2000, server_event_seq=18),
        duplex(10, 5000, 1000, server_event_seq=19),
        *done(11),
        commit(12),
        duplex(13, 80, 80, "r2"),
        disconnect(14),
    ]
    tapped.connect(again, REALTIME, client=("192.0.2.8", 50000))
    events = tapped.events()
    assert len({event.stream for event in events}) == 1
    assert said(events)[4:] == [
        (4, "turn_end", 1, "aborted"),
        (4, "stream_end", "disconnect"),
        (9.25, "stream_start"),
        (9.25, "resume"),
        (10, "audio", 1, 1000),
        (11, "turn_end", 1, "completed"),
        (12, "turn", 2),
        (13, "audio", 2, 80),
        (14, "turn_end", 2, "aborted"),
        (14, "stream_end", "disconnect"),
    ], "what was sent before the cut is not counted again"
    start, came_back = events[6:8]
    assert start.peer == "192.0.2.8:50000"
    assert isinstance(came_back, ev.Resume)
    assert (came_back.last_good_id, came_back.result) == (17, "hit")
    assert came_back.latency_ms == pytest.approx(250)
    assert came_back.outage_ms == pytest.approx(5000)


def test_a_server_that_says_something_before_it_takes_the_session_up_leaves_no_stream_behind(tapped):
    tapped.connect([*opening(), created(1), commit(2), duplex(3, 2000, 2000), disconnect(4)], REALTIME)
    tapped.connect(
        [
            *opening(8.5),
            resume(9),
            answers(9.1, type="rate_limits.updated"),
            resumed(9.25),
            duplex(10, 3000, 1000),
            disconnect(14),
        ],
        REALTIME,
    )
    events = tapped.events()
    assert said(events)[5:] == [
        (9.1, "stream_start"),
        (9.25, "stream_end", "resumed"),
        (9.25, "stream_start"),
        (9.25, "resume"),
        (10, "audio", 1, 1000),
        (14, "turn_end", 1, "aborted"),
        (14, "stream_end", "disconnect"),
    ]
    assert [event.stream == events[0].stream for event in events[5:]] == [False] * 2 + [True] * 5


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"type": "session.resync_required", "reason": "journal_gap"}, "gone"),
        (
            {"type": "error", "error": {"code": "session_resume_expired", "message": "Unknown session"}},
            "unknown",
        ),
        ({"type": "error", "error": {"code": "invalid_resume_token", "message": "no"}}, "refused"),
        (
            {
                "type": "error",
                "error": {"code": "session_resume_conflict", "message": "sequence 9 is newer than 7"},
            },
            "ahead",
        ),
        ({"type": "error", "error": "unreadable"}, "refused"),
    ],
)
def test_a_return_that_is_refused(tapped, answer, result):
    tapped.connect([*opening(8), resume(9, seq=-5), answers(9.5, **answer), disconnect(10)], REALTIME)
    start, came_back, *_ = tapped.events()
    assert (start.t, came_back.result, came_back.last_good_id, came_back.outage_ms) == (9.5, result, 0, None)


def test_the_connection_that_was_taken_over_ends_nothing_more(tapped):
    """The old connection is still open when the new one resumes; its own end comes last."""
    first = [*opening(), created(1), commit(2), duplex(3, 80, 80)]

    async def interrupted(scope, receive, send):
        await acted(first, tapped.clock)(scope, receive, send)
        await tapped.connection([*opening(4), resume(4), resumed(4), disconnect(6)], REALTIME)
        await send({"type": "websocket.close", "code": 1000})

    tapped.connect(first, REALTIME, app=interrupted)
    assert said(tapped.events()) == [
        (1, "stream_start"),
        (2, "turn", 1),
        (3, "audio", 1, 80),
        (4, "turn_end", 1, "aborted"),
        (4, "stream_end", "replaced"),
        (4, "stream_start"),
        (4, "resume"),
        (6, "stream_end", "disconnect"),
    ]


OTHER = "duplex-77aa0c0e7b1d4a11"
LONG = "duplex-" + "9" * 10_000
MISS = {"type": "error", "error": {"code": "session_resume_expired", "message": "Unknown session"}}


@pytest.mark.parametrize("filler", [0, 20_000], ids=["short", "beside-much"])
@pytest.mark.parametrize(
    ("keys", "asked", "answer", "taken"),
    [
        (("a", "b"), OTHER, hit(SESSION), SESSION),
        (("a", "b"), OTHER, hit(OTHER), None),
        (("a", None), OTHER, hit(OTHER), None),
        ((None, "b"), OTHER, hit(OTHER), None),
        ((None, None), OTHER, hit(OTHER), OTHER),
        (("a", "b"), OTHER, MISS, None),
        (("a", "b"), OTHER, hit(), None),
        (("a", "b"), OTHER, hit("unheard-of-1234567"), None),
        (("a", "b"), "", hit(SESSION), SESSION),
        (("a", "b"), LONG, hit(SESSION), SESSION),
        (("a", "b"), LONG, hit(LONG), None),
        (("a", "b"), SESSION, hit(LONG), None),
    ],
)
def test_no_client_takes_anothers_stream_by_naming_its_id(tapped, keys, asked, answer, taken, filler):
    """Two sessions of two clients, one of them still at work. Both are asked for by the client of the first."""
    mine, theirs = (keyed(key) for key in keys)
    tapped.connect([*opening(), created(1), commit(2), duplex(3, 80, 80), disconnect(4)], REALTIME, **mine)
    at_work = [*opening(5), created(5, OTHER), commit(6), duplex(6, 80, 80)]
    again = [*opening(7), resume(7, session=asked), answers(7.5, **answer, filler="x" * filler)]

    async def beside(scope, receive, send):
        await acted(at_work, tapped.clock)(scope, receive, send)
        await tapped.connection([*again, commit(8), duplex(9, 80, 80), disconnect(10)], REALTIME, **mine)
        tapped.clock.t = 11
        await send(duplex(11, 160, 80).message)

    tapped.connect(at_work, REALTIME, app=beside, **theirs)
    events = tapped.events()
    owners = {name: events[n].stream for name, n in ((SESSION, 0), (OTHER, 5))}
    assert len(set(owners.values())) == 2
    came_back = {event.stream for event in events if isinstance(event, ev.Resume)}
    assert len(came_back) == 1
    if taken:
        assert came_back == {owners[taken]}
    else:
        assert not came_back & {*owners.values()}
    late = [event.stream for event in events if isinstance(event, ev.Audio) and event.t == 11]
    assert late == ([] if taken == OTHER else [owners[OTHER]]), (
        "the other's turn goes on in the other's stream"
    )


def test_a_session_that_another_key_began_stays_its_owners(tapped):
    """Another client's connection names it, unasked and asked: its owner still finds it."""
    tapped.connect(
        [*opening(), created(1), commit(2), duplex(3, 80, 80), disconnect(4)], REALTIME, **keyed("a")
    )
    for t, first in ((5, []), (6, [resume(6)]), (7, [says(7, type="session.update"), resume(7)])):
        tapped.connect([*opening(t), *first, resumed(t), disconnect(t)], REALTIME, **keyed("b"))
    tapped.connect([*opening(8), resume(8), resumed(8.5), disconnect(9)], REALTIME, **keyed("a"))
    events = tapped.events()
    assert [event.stream for event in events if event.t == 8.5] == [events[0].stream] * 2
    assert len({event.stream for event in events}) == 4


@pytest.mark.parametrize(("session", "kept"), [("d" * 256, True), ("d" * 257, False), (LONG, False)])
def test_a_session_is_remembered_under_an_id_of_a_bounded_length(tapped, session, kept):
    tapped.connect([*opening(), created(1, session), disconnect(2)], REALTIME)
    tapped.connect([*opening(3), resume(3, session=session), answers(4, **hit(session))], REALTIME)
    assert len({event.stream for event in tapped.events()}) == (1 if kept else 2)
