"""`POST /omniwatch/report`: a client's own word on its turn."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers.scripted_tap import (
    CHAT,
    REALTIME,
    VIDEO,
    Server,
    Step,
    Tapped,
    acted,
    answers,
    body,
    disconnect,
    opening,
    request,
    response,
    says,
    scope_of,
    wav,
)
from omniwatch import events as ev
from omniwatch.tap.observer import STREAM_HEADER
from omniwatch.tap.report import MAX_BODY_BYTES, MAX_LEFT, PATH, PER_STREAM, Reports
from omniwatch.tap.stream_events import StreamEvents

ASKED = {"stream": True, "messages": []}
SPOKEN = (
    b"data: "
    + json.dumps({"choices": [{"delta": {"content": wav(80)}}], "modality": "audio"}).encode()
    + b"\n\n"
)


def report(tapped: Tapped, **fields: Any) -> int:
    status, _ = tapped.post(PATH, json.dumps(fields).encode())
    return int(status["status"])


def handed_out(message: Any) -> str:
    (token,) = [value.decode() for name, value in message["headers"] if name == STREAM_HEADER]
    return str(token)


def chatted(tapped: Tapped, **scope: Any) -> str:
    steps = [*request(1, ASKED), response(2), body(3, SPOKEN), body(4, b"", more=False)]
    return handed_out(tapped.connect(steps, CHAT, **scope)[0])


def rtts(tapped: Tapped) -> list[ev.Rtt]:
    return [event for event in tapped.events() if isinstance(event, ev.Rtt)]


def test_a_chat_client_reports_on_the_stream_and_turn_of_its_response(tapped):
    first, second = chatted(tapped), chatted(tapped)
    assert len({first, second}) == 2
    assert len(first) >= 32
    assert report(tapped, stream=first, rtt_ms=612.5) == 204
    assert report(tapped, stream=second, rtt_ms=0, turn="mine") == 409
    assert report(tapped, stream=second, rtt_ms=0) == 204
    turns = [event.turn for event in tapped.events() if isinstance(event, ev.TurnStart)]
    assert [(event.stream, event.turn, event.rtt_ms) for event in rtts(tapped)] == [
        ("192.0.2.7", turns[0], 612.5),
        ("192.0.2.7", turns[1], 0.0),
    ]


def during(tapped: Tapped, path: str, steps: list[Step], then: list[Step], act: Any, **scope: Any) -> None:
    """Open a websocket, do something beside it, and go on."""

    async def app(scope, receive, send):
        await acted(steps, tapped.clock)(scope, receive, send)
        await act()
        await acted(then, tapped.clock)(scope, receive, send)

    tapped.connect([*steps, *then], path, app=app, **scope)


async def posted(tapped: Tapped, **fields: Any) -> int:
    server = Server([{"type": "http.request", "body": json.dumps(fields).encode(), "more_body": False}])
    await tapped.tap(scope_of(PATH, method="POST"), server.receive, server.send)
    return int(server.sent[0]["status"])


@pytest.mark.parametrize(
    ("path", "steps", "query", "token"),
    [
        (
            VIDEO,
            [says(0, type="video.query", text="x"), answers(1, type="pong")],
            b"omniwatch_stream=chosen-by-the-client-itself",
            "chosen-by-the-client-itself",
        ),
        (
            REALTIME,
            [
                answers(0, type="session.created", id="sess-0123456789abcdef", created=1),
                says(0, type="response.create"),
                answers(1, type="pong"),
            ],
            b"",
            "sess-0123456789abcdef",
        ),
        (
            REALTIME,
            [
                answers(0, type="session.created", session={"id": "duplex-0123456789abcdef"}),
                says(0, type="response.create"),
                answers(1, type="pong"),
            ],
            b"duplex=1",
            "duplex-0123456789abcdef",
        ),
    ],
)
def test_a_websocket_is_known_by_what_its_client_knows(tapped, path, steps, query, token):
    statuses: list[int] = []

    async def act():
        statuses.append(await posted(tapped, stream=token, rtt_ms=500))

    during(tapped, path, [*opening(), *steps], [disconnect(5)], act, query_string=query)
    assert statuses == [204]
    assert report(tapped, stream=token, rtt_ms=500) == 404, "its client has left"
    (event,) = rtts(tapped)
    assert event.stream == tapped.events()[0].stream


def test_a_report_of_longer_than_since_the_question_is_refused(tapped):
    token = chatted(tapped)
    assert report(tapped, stream=token, rtt_ms=600_000) == 409
    assert report(tapped, stream=token, rtt_ms=3_300) == 409
    assert report(tapped, stream=token, rtt_ms=3_000) == 204
    assert [event.rtt_ms for event in rtts(tapped)] == [3_000]


def spoken(tapped: Tapped, pieces: int = 25) -> str:
    """Hand over so many pieces of 80 ms at once, at 3 s; return the id to report under."""
    steps = [
        *request(1, ASKED),
        response(2),
        *(body(3, SPOKEN) for _ in range(pieces)),
        body(3, b"", more=False),
    ]
    return handed_out(tapped.connect(steps, CHAT)[0])


def told(tapped: Tapped) -> list[tuple[str, float]]:
    """Return what was written of reports: of each event its name and its value."""
    values = {ev.Rtt: "rtt_ms", ev.Underrun: "ms", ev.Played: "played_ms"}
    return [
        (type(event).__name__, getattr(event, values[type(event)]))
        for event in tapped.events()
        if type(event) in values
    ]


def test_one_report_has_the_round_trip_the_playhead_and_the_underrun(tapped):
    token = spoken(tapped)
    tapped.clock.t = 4.0
    assert report(tapped, stream=token, rtt_ms=2_000, played_ms=700, underrun_ms=120) == 204
    assert told(tapped) == [("Rtt", 2_000), ("Underrun", 120), ("Played", 700)]
    (played,) = [event for event in tapped.events() if isinstance(event, ev.Played)]
    assert played.source == "player"


def test_what_is_said_again_counts_once(tapped):
    token = spoken(tapped)
    for t in (4.0, 5.0):
        tapped.clock.t = t
        assert report(tapped, stream=token, rtt_ms=2_000, underrun_ms=120) == 204
    assert told(tapped) == [("Rtt", 2_000), ("Underrun", 120), ("Underrun", 0)]


def test_no_more_is_believed_to_be_played_than_was_handed_over(tapped):
    token = spoken(tapped, pieces=5)
    tapped.clock.t = 60.0
    assert report(tapped, stream=token, played_ms=660) == 409
    assert report(tapped, stream=token, played_ms=450) == 204
    assert told(tapped) == [("Played", 400)], "rounding is forgiven, but not believed"


def test_nothing_is_played_faster_than_the_clock(tapped):
    token = spoken(tapped)
    tapped.clock.t = 4.0
    assert report(tapped, stream=token, played_ms=1_270) == 409
    assert report(tapped, stream=token, played_ms=1_250) == 204
    assert told(tapped) == [("Played", 1_250)]


def test_no_underrun_is_longer_than_since_the_last_report(tapped):
    token = spoken(tapped)
    tapped.clock.t = 5.0
    assert report(tapped, stream=token, underrun_ms=2_300) == 409, "since speech began"
    assert report(tapped, stream=token, underrun_ms=1_000) == 204
    tapped.clock.t = 6.0
    assert report(tapped, stream=token, underrun_ms=2_300) == 409
    assert report(tapped, stream=token, underrun_ms=2_250) == 204
    assert told(tapped) == [("Underrun", 1_000), ("Underrun", 1_250)]


def test_what_is_out_of_bounds_takes_the_rest_of_its_report_with_it(tapped):
    token = spoken(tapped)
    tapped.clock.t = 4.0
    assert report(tapped, stream=token, rtt_ms=2_000, played_ms=9_000) == 409
    assert told(tapped) == []


@pytest.mark.parametrize("fields", [{"played_ms": 0}, {"underrun_ms": 0}, {"rtt_ms": 0, "turn": "mine"}])
def test_nothing_is_believed_of_a_turn_without_speech_or_without_a_question(tapped, fields):
    token = handed_out(tapped.connect([*request(1, ASKED | {"modalities": ["audio"]}), response(2)], CHAT)[0])
    assert report(tapped, stream=token, **fields) == 409
    assert told(tapped) == []


def test_a_guess_is_named_as_one(tapped):
    token = spoken(tapped)
    tapped.clock.t = 4.0
    assert report(tapped, stream=token, played_ms=80, source="framework") == 204
    (played,) = [event for event in tapped.events() if isinstance(event, ev.Played)]
    assert played.source == "framework"
    assert report(tapped, stream=token, played_ms=80, source="me") == 400


def test_a_client_that_lies_bends_its_own_curve_only(tapped):
    lying, other = spoken(tapped), spoken(tapped)
    tapped.clock.t = 4.0
    assert report(tapped, stream=lying, underrun_ms=900) == 204
    turns = [event.turn for event in tapped.events() if isinstance(event, ev.TurnStart)]
    assert [event.turn for event in tapped.events() if isinstance(event, ev.Underrun)] == turns[:1]
    assert report(tapped, stream=other, underrun_ms=0) == 204


def test_chats_that_are_over_push_out_no_live_session(tapped):
    statuses: list[int] = []
    steps = [*opening(), says(0, type="video.query", text="x")]
    chosen = "chosen-by-the-client-itself"

    async def act():
        chat = [*request(1, ASKED), response(2), body(3, SPOKEN), body(4, b"", more=False)]
        for _ in range(MAX_LEFT + 1):
            await tapped.connection(chat, CHAT)
        statuses.append(await posted(tapped, stream=chosen, rtt_ms=500))

    during(tapped, VIDEO, steps, [disconnect(5)], act, query_string=b"omniwatch_stream=" + chosen.encode())
    assert statuses == [204]


def test_a_websocket_is_known_by_the_header_of_its_handshake(tapped):
    statuses: list[int] = []
    sent: list[Any] = []

    async def app(scope, receive, send):
        await acted([*opening(), says(0, type="video.query", text="x")], tapped.clock)(scope, receive, send)
        tapped.clock.t = 1
        statuses.append(await posted(tapped, stream=handed_out(sent[0]), rtt_ms=500))

    async def connect():
        server = Server(
            step.message
            for step in [*opening(), says(1, type="video.query", text="x")]
            if step.direction == "in"
        )
        server.sent = sent
        await tapped.tap(scope_of(VIDEO, app=app), server.receive, server.send)

    asyncio.run(connect())
    assert statuses == [204]
    assert [event.turn for event in rtts(tapped)] == [1], "without a turn it is the latest"


@pytest.mark.parametrize("token", [b"", b"short", b"x" * 65])
def test_an_id_too_short_to_be_a_secret_or_too_long_is_none(tapped, token):
    steps = [*opening(), disconnect(5)]
    statuses: list[int] = []

    async def act():
        statuses.append(await posted(tapped, stream=token.decode(), rtt_ms=1))

    during(tapped, VIDEO, steps[:2], steps[2:], act, query_string=b"omniwatch_stream=" + token)
    assert statuses == [404]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rtt_ms": 5},
        {"rtt_ms": -1},
        {"rtt_ms": 600_001},
        {"rtt_ms": "5"},
        {"rtt_ms": None},
        {"rtt_ms": True},
        {"rtt_ms": 5, "turn": -1},
        {"rtt_ms": 5, "turn": ""},
        {"rtt_ms": 5, "turn": "x" * 65},
        {"rtt_ms": 5, "stream": 7},
        {"played_ms": -1},
        {"underrun_ms": -1},
        {"played_ms": "5"},
    ],
)
def test_what_is_no_report_is_refused(tapped, fields):
    token = chatted(tapped)
    if fields != {"rtt_ms": 5}:
        fields = {"stream": token} | fields
    assert report(tapped, **fields) == 400
    assert rtts(tapped) == []


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 1000])
def test_what_is_no_json_is_refused(tapped, data):
    status, _ = tapped.post(PATH, data)
    assert status["status"] == 400


def test_an_unknown_stream_is_not_found(tapped):
    status, why = tapped.post(PATH, json.dumps({"stream": "x" * 32, "rtt_ms": 5}).encode())
    assert (status["status"], why["body"]) == (404, b"no such stream\n")
    assert tapped.events() == []


def test_the_name_of_a_stream_is_not_its_id(tapped):
    chatted(tapped, headers=[(b"x-omni-stream", b"a-name-of-sixteen-or-more")])
    assert report(tapped, stream="a-name-of-sixteen-or-more", rtt_ms=5) == 404


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_large_body_is_refused_unread(tapped, pieces):
    piece = {"type": "http.request", "body": b" " * (MAX_BODY_BYTES // pieces + 1), "more_body": True}
    server = Server([piece] * pieces)
    asyncio.run(tapped.tap(scope_of(PATH, method="POST"), server.receive, server.send))
    assert server.sent[0]["status"] == 413


def test_a_client_that_leaves_gets_no_answer(tapped):
    server = Server([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    asyncio.run(tapped.tap(scope_of(PATH, method="POST"), server.receive, server.send))
    assert server.sent == []


def test_reports_of_one_stream_are_bounded(tapped):
    token, other = chatted(tapped), chatted(tapped)
    statuses = [report(tapped, stream=token, rtt_ms=5) for _ in range(int(PER_STREAM[1]) + 2)]
    assert statuses[: int(PER_STREAM[1])] == [204] * int(PER_STREAM[1])
    assert statuses[-1] == 429
    assert report(tapped, stream=other, rtt_ms=5) == 204


def listener() -> StreamEvents:
    stream = StreamEvents("x", lambda event: None, lambda: 0.0, lambda: 0.0)
    stream.ask(1)
    return stream


def post(reports: Reports, token: str) -> int:
    server = Server([{"type": "http.request", "body": json.dumps({"stream": token, "rtt_ms": 5}).encode()}])
    asyncio.run(reports.serve({}, server.receive, server.send))
    return int(server.sent[0]["status"])


def test_reports_in_all_are_bounded_and_allowed_again_with_time():
    now = [100.0]
    reports = Reports(lambda: now[0])
    tokens = [reports.hand_out(listener()) for _ in range(300)]
    statuses = [post(reports, token) for token in tokens[:300]]
    assert statuses.count(204) == 200
    now[0] += 0.5
    assert [post(reports, token) for token in tokens[200:]].count(204) == 100


def test_a_flood_of_live_streams_makes_no_other_ones_id_forgotten():
    reports = Reports(lambda: 0.0)
    tokens = [reports.hand_out(listener()) for _ in range(2 * MAX_LEFT)]
    assert [post(reports, token) for token in (tokens[0], tokens[-1])] == [204, 204]


def test_ids_of_chats_that_are_over_are_forgotten_oldest_first():
    reports = Reports(lambda: 0.0)
    tokens = [reports.hand_out(listener()) for _ in range(MAX_LEFT + 1)]
    for token in tokens:
        reports.set_aside(token)
    assert [post(reports, token) for token in (tokens[0], tokens[1], tokens[-1])] == [404, 204, 204]


def test_other_methods_belong_to_the_application(tapped):
    sent = tapped.connect([response(0, 405)], PATH, method="OPTIONS")
    assert sent[0]["status"] == 405
