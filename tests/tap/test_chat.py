"""The tap on `POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers.scripted_tap import (
    CHAT,
    Step,
    Tapped,
    body,
    pcm16,
    request,
    response,
    said,
    scope_of,
    sse_recording,
    turn_numbers,
    wav,
)
from helpers.wire import WIRE
from omniwatch import events as ev
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings

ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def chunk(data: str | None, modality: str | None = "audio", index: int = 0, **choice: Any) -> bytes:
    whole = {"choices": [{"index": index, "delta": {"content": data}, **choice}], "modality": modality}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


def stated(frames: int, rate: int = 24_000) -> dict[str, Any]:
    return {"audio_metadata": {"format": "wav", "sample_rate_hz": rate, "frame_count": frames, "channels": 1}}


def answer(t: float, *chunks: bytes) -> list[Step]:
    return [
        response(t),
        *(body(t, data) for data in chunks),
        body(t, b"data: [DONE]\n\n"),
        body(t, b"", more=False),
    ]


def gone(t: float) -> Step:
    return Step(t, "in", {"type": "http.disconnect"})


@pytest.mark.parametrize("piece", [17, 1000, 65536, 10**9])
def test_the_recorded_chat_however_its_body_is_cut(tapped, piece):
    whole = sse_recording()
    pieces = [whole[at : at + piece] for at in range(0, len(whole), piece)]
    steps = [
        *request(10, ASKED),
        response(10.1),
        *(body(11, data) for data in pieces),
        body(12, b"", more=False),
    ]
    tapped.connect(steps, CHAT)
    events = tapped.events()
    assert said(events) == [
        (10, "stream_start"),
        (10, "turn", events[1].turn),
        *((11, "audio", events[1].turn, ms) for ms in (296.875, 2000, 2000, 2000, 1600)),
        (11, "turn_end", events[1].turn, "completed"),
    ]


def test_the_times_of_a_real_session(tapped):
    """The body chunks that a real server's middleware saw, with speech of the same length."""
    steps: list[Step] = []
    lengths = iter([297, 2000, 2000, 2000, 1600])
    for line in (WIRE / "chat-asgi.txt").read_text().splitlines():
        words = line.split()
        if words[2] != CHAT:
            continue
        t = float(words[0])
        if words[3] == "open":
            steps += request(t, ASKED)
        elif words[3] == "http.response.start":
            steps.append(response(t))
        elif int(words[5].removeprefix("size=")) > 10_000:
            steps.append(body(t, chunk(wav(next(lengths)))))
        else:
            steps.append(body(t, chunk("word", "text"), more=words[6] == "more=True"))
    tapped.connect(steps, CHAT)
    (numbers,) = turn_numbers(tapped.events())
    assert numbers.first_audio == pytest.approx((5652.586579 - 5651.852209) * 1000, abs=0.1)
    assert numbers.audio == pytest.approx(7897)
    first_underrun = 5653.394303 - 5652.586579 - 0.08 - 0.297
    assert numbers.underrun == pytest.approx(first_underrun * 1000, abs=0.1), "the second chunk came late"


@pytest.mark.parametrize("modalities", [None, ["text"]])
def test_a_text_only_answer_makes_no_turn(tapped, modalities):
    text = (WIRE / "chat-text.sse").read_bytes()
    asked = ASKED if modalities is None else ASKED | {"modalities": modalities}
    tapped.connect([*request(1, asked), response(2), body(3, text), body(4, b"", more=False)], CHAT)
    assert tapped.events() == []


def test_speech_that_was_asked_for_by_name_and_never_came_is_a_turn(tapped):
    text = (WIRE / "chat-text.sse").read_bytes()
    asked = ASKED | {"modalities": ["text", "audio"]}
    tapped.connect([*request(1, asked), response(2), body(3, text), body(4, b"", more=False)], CHAT)
    assert [event[::2] for event in said(tapped.events())[1:]] == [
        (1, tapped_turn(tapped)),
        (3, tapped_turn(tapped)),
    ]


def tapped_turn(tapped: Tapped) -> ev.Turn:
    turns = [event.turn for event in tapped.events() if isinstance(event, ev.TurnStart)]
    return turns[0]


@pytest.mark.parametrize(
    "choice",
    [
        {"data": wav(240)},
        {"data": wav(240), **stated(5760)},
        {"data": wav(999), **stated(5760)},
        {"data": "", **stated(5760)},
        {"data": pcm16(240)},
        {"data": wav(240), **stated(0)},
        {"data": wav(240), **stated(100, 0)},
        {"data": wav(240, data_size=0xFFFFFFFF)},
    ],
)
def test_the_length_is_what_the_server_states_else_the_header_else_the_size(tapped, choice):
    tapped.connect([*request(1, ASKED), *answer(2, chunk(choice.pop("data"), **choice))], CHAT)
    assert [event[3] for event in said(tapped.events()) if event[1] == "audio"] == [240]


def test_a_compressed_format_without_metadata_is_left(tapped):
    asked = ASKED | {"audio": {"format": "opus", "voice": "x"}}
    tapped.connect([*request(1, asked), *answer(2, chunk(pcm16(80)), chunk(pcm16(80), **stated(1920)))], CHAT)
    assert [event[3] for event in said(tapped.events()) if event[1] == "audio"] == [80]


def test_of_several_choices_one_is_listened_to(tapped):
    same = {"choices": [{"index": n, "delta": {"content": wav(80)}} for n in (1, 0, 2)], "modality": "audio"}
    both = b"data: " + json.dumps(same).encode() + b"\n\n"
    tapped.connect([*request(1, ASKED), *answer(2, both, both, chunk(wav(160), index=0))], CHAT)
    assert [event[3] for event in said(tapped.events()) if event[1] == "audio"] == [80, 80]


@pytest.mark.parametrize(
    "piece",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b'data: {"choices": 5, "modality": "audio"}\n\n',
        b'data: {"choices": [{"delta": {"content": 5}}], "modality": "audio"}\n\n',
        b'data: {"choices": [{}], "modality": "audio"}\n\n',
        b": comment\n\nevent: x\nid: 5\n\n\xff\xfe\n\n",
        chunk(None),
        chunk(""),
        b"data: " + b"x" * 100_000 + b"\n\n",
    ],
)
def test_what_cannot_be_read_is_passed_over(tapped, piece):
    tapped.connect([*request(1, ASKED), *answer(2, piece, chunk(wav(80)), piece)], CHAT)
    assert [event[1] for event in said(tapped.events())] == ["stream_start", "turn", "audio", "turn_end"]


def test_a_client_that_leaves_mid_speech_ends_the_turn(tapped):
    late = body(6, chunk(wav(80)))
    steps = [
        *request(1, ASKED),
        response(2),
        body(3, chunk(wav(80))),
        gone(4),
        late,
        body(7, b"", more=False),
    ]
    tapped.connect(steps, CHAT)
    assert [event[::3] for event in said(tapped.events())[1:]] == [(1,), (3, 80), (4, "aborted")]


def test_a_client_that_gives_up_waiting_is_told_of_if_it_asked_for_speech(tapped):
    tapped.connect([*request(1, ASKED | {"modalities": ["audio"]}), response(2), gone(9)], CHAT)
    tapped.connect([*request(11, ASKED), response(12), gone(19)], CHAT)
    assert [(event[0], event[1], event[-1]) for event in said(tapped.events())[1:]] == [
        (1, "turn", tapped_turn(tapped)),
        (9, "turn_end", "aborted"),
    ]


@pytest.mark.parametrize(
    ("problem", "reason"), [(RuntimeError, "failed"), (asyncio.CancelledError, "aborted")]
)
def test_an_application_that_fails_or_is_cancelled(tapped, problem, reason):
    async def broken(scope, receive, send):
        await receive()
        await send(response(0).message)
        await send(body(0, chunk(wav(80))).message)
        raise problem

    with pytest.raises(problem):
        tapped.connect(request(1, ASKED), CHAT, app=broken)
    assert said(tapped.events())[-1][3] == reason


def test_an_error_in_the_stream_fails_the_turn(tapped):
    error = b'data: {"error": {"message": "engine died", "code": 500}}\n\n'
    tapped.connect([*request(1, ASKED), *answer(2, chunk(wav(80)), error)], CHAT)
    assert said(tapped.events())[-1][3] == "failed"


def test_an_error_before_the_first_speech_fails_the_turn_as_well(tapped):
    error = b'data: {"error": {"message": "engine died", "code": 500}}\n\n'
    tapped.connect([*request(1, ASKED), *answer(2, error)], CHAT)
    assert ends(tapped) == [(2, "turn", "failed")]


def ends(tapped: Tapped) -> list[tuple[float, str, str]]:
    """Each turn's time and its end, of turns without speech."""
    found = said(tapped.events())
    assert [event[1] for event in found] == ["stream_start", "turn", "turn_end"] * (len(found) // 3)
    return [(asked[0], asked[1], ended[3]) for _, asked, ended in zip(*[iter(found)] * 3, strict=True)]


def refusal(status: int, asked: bytes | dict[str, Any] = ASKED) -> list[Step]:
    return [*request(1, asked), response(9, status, "application/json"), body(9, b"{}", more=False)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "error"),
        (503, "error"),
        (599, "error"),
        (408, "error"),
        (429, "error"),
        (400, "refused"),
        (404, "refused"),
        (422, "refused"),
    ],
)
@pytest.mark.parametrize("modalities", [None, ["text", "audio"]])
def test_a_status_in_place_of_speech_ends_the_turn(tapped, status, reason, modalities):
    """Both at the moment of the answer: no reader takes them for events of a clock that was set back."""
    asked = ASKED if modalities is None else ASKED | {"modalities": modalities}
    sent = tapped.connect(refusal(status, asked), CHAT)
    assert len(sent[0]["headers"]) == 2
    assert ends(tapped) == [(9, "turn", reason)]


@pytest.mark.parametrize("asked", [b"{", {"x": "y" * 9_000_000}])
def test_a_request_that_cannot_be_read_may_have_asked_for_speech(tapped, asked):
    tapped.connect(refusal(500, json.dumps(asked).encode() if isinstance(asked, dict) else asked), CHAT)
    assert ends(tapped) == [(9, "turn", "error")]


@pytest.mark.parametrize(
    "steps",
    [
        refusal(200),
        refusal(302),
        refusal(401),
        refusal(403),
        refusal(500, ASKED | {"modalities": ["text"]}),
        refusal(500, ASKED | {"stream": False}),
        refusal(500, {"messages": []}),
        [response(2, 500), body(3, b"no", more=False)],
        [*request(1, ASKED, cut=2)[:1], response(2, 408), body(3, b"late", more=False)],
        [*request(1, ASKED), gone(2), response(9, 500), body(9, b"", more=False)],
    ],
    ids=[
        "not streamed",
        "elsewhere",
        "no key",
        "no right",
        "text alone",
        "not as a stream",
        "no stream by default",
        "unread",
        "half a request",
        "the client is gone",
    ],
)
def test_other_answers_without_speech_are_left(tapped, steps):
    sent = tapped.connect(steps, CHAT)
    assert len(sent[0]["headers"]) == 2
    assert tapped.events() == []


def test_a_warm_up_that_fails_is_left(tapped):
    tapped.connect(refusal(503), CHAT, query_string=b"vllm_omni_warmup=1")
    assert tapped.events() == []


@pytest.mark.parametrize(("problem", "reasons"), [(RuntimeError, ["error"]), (asyncio.CancelledError, [])])
def test_an_application_that_ends_without_an_answer(tapped, problem, reasons):
    async def broken(scope, receive, send):
        await receive()
        raise problem

    with pytest.raises(problem):
        tapped.connect(request(1, ASKED), CHAT, app=broken)
    assert [reason for _, _, reason in ends(tapped)] == reasons


def test_an_application_that_fails_before_or_after_it_was_asked(tapped):
    async def broken(scope, receive, send):
        for step in scope["script"]:
            await (receive() if step.direction == "in" else send(step.message))
        raise RuntimeError

    for steps in (request(1, ASKED, cut=2)[:1], refusal(400), [*request(1, ASKED), gone(2)]):
        with pytest.raises(RuntimeError):
            tapped.connect(steps, CHAT, app=broken, script=steps)
    assert [reason for _, _, reason in ends(tapped)] == ["refused"]


def test_a_client_that_cannot_be_sent_to_has_left(tapped):
    class GoneServer:
        async def receive(self):
            return request(1, ASKED | {"modalities": ["audio"]})[0].message

        async def send(self, message):
            raise ConnectionResetError

    async def application(scope, receive, send):
        await receive()
        await send(response(2).message)

    server = GoneServer()
    with pytest.raises(ConnectionResetError):
        asyncio.run(tapped.tap(scope_of(CHAT, app=application), server.receive, server.send))
    assert [reason for _, _, reason in ends(tapped)] == ["aborted"]


def test_a_failed_turn_moves_no_curve_of_its_listener(tapped):
    """While one answer is being heard, another request of the same client, asked long before, fails."""
    speech = [*request(1, ASKED), *answer(1.5, chunk(wav(8000)))]
    tapped.connect(speech, CHAT)
    tapped.connect(refusal(500), CHAT)
    events = tapped.events()
    table = StreamTable(Settings())

    def curves() -> list[Any]:
        (stream,) = table.streams
        return [
            [table.drift_ms(stream, t), table.rtt_ms(stream, t), stream.silent_s(t), stream.player.end_t]
            for t in (9.1, 9.3)
        ]

    table.apply_all(events[:4])
    before = curves()
    assert before[0][:2] == [0.0, 500]
    table.apply_all(events[4:])
    assert curves() == before
    assert {name: n for name, n in table.totals.turns.items() if n} == {"completed": 1, "failed": 1}


def names(tapped: Tapped) -> list[str]:
    return [event.stream for event in tapped.events() if isinstance(event, ev.StreamStart)]


@pytest.mark.parametrize(
    ("asked", "scope", "name"),
    [
        ({"user": "ada"}, {"headers": [(b"x-omni-stream", b"kitchen")]}, "name=kitchen"),
        ({"user": "ada"}, {}, "user=ada"),
        ({"user": "声"}, {}, "user=声"),
        ({}, {}, "192.0.2.7"),
        ({"user": ""}, {"headers": [(b"x-omni-stream", b"")]}, "192.0.2.7"),
        ({"user": 5}, {}, "192.0.2.7"),
        ({}, {"client": None}, "local"),
        ({"user": "x" * 59}, {}, "user=" + "x" * 59),
    ],
)
def test_a_stream_is_named_by_header_user_or_address(tapped, asked, scope, name):
    tapped.connect([*request(1, ASKED | asked), *answer(2, chunk(wav(80)))], CHAT, **scope)
    assert names(tapped) == [name]


def test_no_client_can_take_the_name_of_another(tapped):
    victim = {"headers": [(b"authorization", b"Bearer one"), (b"x-omni-stream", b"kitchen")]}
    tapped.connect([*request(1, ASKED), *answer(2, chunk(wav(80)))], CHAT)
    tapped.connect([*request(1, ASKED), *answer(2, chunk(wav(80)))], CHAT, **victim)
    address, keyed = names(tapped)
    for value in (address, keyed, "kitchen", keyed.partition("=")[0] + "=kitchen"):
        for headers in ([], [(b"authorization", b"Bearer two")]):
            scope = {"headers": [*headers, (b"x-omni-stream", value.encode())]}
            tapped.connect([*request(1, ASKED), *answer(2, chunk(wav(80)))], CHAT, **scope)
        tapped.connect([*request(1, ASKED | {"user": value}), *answer(2, chunk(wav(80)))], CHAT)
    assert set(names(tapped)[2:]).isdisjoint({address, keyed})


def test_a_client_with_a_key_keeps_its_stream_when_it_roams(tapped):
    headers = [(b"authorization", b"Bearer one"), (b"x-omni-stream", b"kitchen")]
    for address in ("192.0.2.7", "198.51.100.9"):
        steps = [*request(1, ASKED), *answer(2, chunk(wav(80)))]
        tapped.connect(steps, CHAT, headers=headers, client=(address, 40000))
    assert len(set(names(tapped))) == 1


def test_long_names_stay_different(tapped):
    for user in ("x" * 65, "x" * 66, "声" * 100):
        tapped.connect([*request(1, ASKED | {"user": user}), *answer(2, chunk(wav(80)))], CHAT)
    found = names(tapped)
    assert len(set(found)) == 3
    assert all(len(name) == 64 for name in found)


def test_requests_one_after_another_are_one_stream_and_at_once_several(tapped):
    steps = [*request(1, ASKED), *answer(2, chunk(wav(80)))]

    async def at_once():
        begun = asyncio.Event()

        async def waits(scope, receive, send):
            await receive()
            await send(response(0).message)
            begun.set()
            await asyncio.sleep(0)
            await tapped.connection(steps, CHAT)
            await send(body(0, chunk(wav(80)), more=False).message)

        await tapped.connection(request(1, ASKED), CHAT, app=waits)

    tapped.connect(steps, CHAT)
    tapped.connect(steps, CHAT, client=("192.0.2.7", 40001))
    asyncio.run(at_once())
    tapped.connect(steps, CHAT, client=("192.0.2.7", 40002))
    assert names(tapped) == ["192.0.2.7", "192.0.2.7", "192.0.2.7#2", "192.0.2.7", "192.0.2.7"]
    assert len({event.turn for event in tapped.events() if isinstance(event, ev.TurnStart)}) == 5


def test_a_request_in_pieces_with_a_picture_in_it(tapped):
    picture = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 3_000_000}}],
    }
    asked = ASKED | {"messages": [picture], "user": "ada", "modalities": ["text", "audio"]}
    tapped.connect([*request(1, asked, cut=50), *answer(2, chunk(wav(80)))], CHAT)
    assert names(tapped) == ["user=ada"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 10_000, json.dumps({"x": "y" * 9_000_000}).encode()]
)
def test_a_request_that_cannot_be_read_goes_by_its_address(tapped, data):
    tapped.connect([*request(1, data, cut=3), *answer(2, chunk(wav(80)))], CHAT)
    assert names(tapped) == ["192.0.2.7"]


def test_a_mounted_application(tapped):
    steps = [*request(1, ASKED), *answer(2, chunk(wav(80)))]
    tapped.connect(steps, "/api" + CHAT, method="POST", root_path="/api")
    assert names(tapped) == ["192.0.2.7"]
