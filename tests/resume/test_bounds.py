"""What an attacker, a flood or a client that does not read can do: nothing to anybody else, and it is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helpers.asgi import Exchange, chat, frame_count, post, resume, resuming
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.resume.store import MAX_GONE
from omniwatch.settings import Resume as Limits
from omniwatch.settings import Settings


def limited(**limits: Any) -> Settings:
    return Settings(resume=Limits(**limits))


def test_guessed_ids_are_refused_counted_and_slowed_down_and_the_owner_is_unharmed() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).until(frame_count(10))
        real = call.headers["x-omni-resume"]
        guesses = [
            real[:-1] + ("A" if real[-1] != "A" else "B"),
            real[1:],
            real + "A",
            "",
            "../../etc/passwd",
            "x" * 5000,
        ]
        guesses += [f"{i:043d}" for i in range(300)]
        statuses = [(await resume(app, guess[:4000], 0).over()).status for guess in guesses]
        assert set(statuses) == {404, 429}
        assert statuses.count(404) <= 11
        assert app.refused[404] + app.refused[429] == len(guesses)
        assert 0 < len(said) <= 30, "a flood is reported, and does not flood the event file"
        assert {(event.stream, event.result) for event in said} <= {
            ("unknown", "unknown"),
            ("unknown", "junk"),
        }
        # From the very same address (a carrier's, say) the owner comes back at once.
        call.leave()
        back = await resume(app, real, call.speech_ids[-1]).over()
        assert call.speech + back.speech == speaker.speech(1)

    run(main())


def test_ids_are_long_and_never_the_same() -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(speech_s=0.2))
        ids = [(await chat(app).over()).headers["x-omni-resume"] for _ in range(50)]
        assert len(set(ids)) == 50
        assert min(map(len, ids)) >= 43

    run(main())


def test_a_flood_of_resumes_is_refused_and_the_stream_still_ends_whole() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        flood = [resume(app, stream, 4) for _ in range(200)]
        other = chat(app, seed=2)
        await asyncio.wait({exchange.task for exchange in flood[:150]})
        refused = [exchange for exchange in flood if exchange.status == 429]
        assert len(refused) >= 189
        assert refused[0].headers["retry-after"] == "1"
        (winner,) = [e for e in [*flood] if e.status == 206 and e.end_reason != "superseded"]
        await winner.over()
        assert winner.speech_ids == list(range(5, 101))
        assert (await other.over()).speech == speaker.speech(2)
        results = [event.result for event in said]
        assert results.count("hit") <= 11
        assert results.count("refused") > 0

    run(main())


@pytest.mark.parametrize("count", [0, 76, 10**6, 2**32 - 1, 2**32, 2**70, -1, 1.5, "3", None])
def test_giant_and_odd_counts_are_refused(count: Any) -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app).until(frame_count(10))
        asked = await post(
            app, "/v1/rtx", {"stream": call.headers["x-omni-resume"], "from_id": 0, "count": count}
        ).over()
        assert asked.status == 400
        assert "count" in asked.error
        assert said[0].result in ("refused", "junk")

    run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"stream": "s"}',
        b'{"stream": 3, "last_good_id": 1}',
        b'{"stream": "s", "last_good_id": -1}',
        b'{"stream": "s", "last_good_id": 4294967296}',
        b'{"stream": "s", "last_good_id": 1, "outage_ms": -1}',
        b"[" * 4000,
    ],
)
def test_bodies_that_do_not_hold_are_refused_in_one_line(body: bytes) -> None:
    async def main() -> None:
        app, _, said = resuming()
        asked = await post(app, "/v1/resume", body).over()
        assert asked.status == 400
        assert "\n" not in asked.error
        assert said[0].result == "junk"

    run(main())


def test_a_body_without_end_is_refused() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        asked = await post(app, "/v1/resume", b'{"stream": "' + b"x" * 100_000).over()
        assert asked.status == 413

    run(main())


def test_a_body_that_does_not_come_is_refused() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        asked = Exchange(app, "POST", "/v1/resume")
        asked.request[0]["more_body"] = True
        await asked.over()
        assert asked.status == 408

    run(main())


def test_a_body_that_comes_a_byte_at_a_time_is_refused_as_late_as_one_that_does_not_come() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        answers: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(9)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            answers.append(message.get("status"))

        began = asyncio.get_running_loop().time()
        scope = {"type": "http", "method": "POST", "path": "/v1/resume", "headers": [], "client": None}
        await app(scope, receive, send)
        assert answers[0] == 408
        assert asyncio.get_running_loop().time() - began == pytest.approx(10)

    run(main())


@pytest.mark.parametrize(
    "value", ["", "x", "-1", "4294967296", "1.4294967296", "1.2.3", "9" * 400, "1\r\nX: y", " 1", "1\n"]
)
def test_last_event_ids_that_do_not_hold_are_refused(value: str) -> None:
    async def main() -> None:
        app, _, _ = resuming()
        call = await chat(app, accept="text/event-stream;omniwatch=resume").until(
            lambda e: b"id: 5\n" in e.body
        )
        headers = {"X-Omni-Resume": call.headers["x-omni-resume"], "Last-Event-ID": value}
        assert (await Exchange(app, "GET", "/v1/resume", headers=headers).over()).status == 400

    run(main())


def test_no_header_of_an_answer_carries_what_a_client_sent() -> None:
    async def main() -> None:
        app, _, said = resuming()
        evil = "evil\r\nSet-Cookie: a=b"
        headers = {"X-Omni-Stream": evil, "X-Omni-Resume": evil, "Last-Event-ID": evil}
        call = await chat(app, headers={"X-Omni-Stream": evil}).until(frame_count(10))
        answers = [
            call,
            await chat(app, headers=headers).over(),
            await resume(app, evil, 1).over(),
            await post(app, "/v1/resume", {"last_good_id": 1}, headers={"X-Omni-Resume": evil}).over(),
            await Exchange(app, "GET", "/v1/resume", headers={"X-Omni-Resume": evil}).over(),
            await Exchange(app, "DELETE", "/v1/resume", headers={"X-Omni-Resume": evil}).over(),
            await resume(app, call.headers["x-omni-resume"], 3).until(frame_count(1)),
        ]
        for answer in answers:
            for name, value in answer.raw_headers:
                assert b"evil" not in name + value
                assert not set(b"\r\n\0").intersection(name + value)
        assert {event.stream for event in said} == {f"name={evil}", "unknown"}, (
            "events are JSON: there it is but text"
        )

    run(main())


def test_long_names_are_kept_to_the_contracts_length_and_apart() -> None:
    async def main() -> None:
        app, _, said = resuming()
        for end in "ab":
            call = await chat(app, headers={"X-Omni-Stream": "n" * 500 + end}).until(frame_count(3))
            await resume(app, call.headers["x-omni-resume"], 1).until(frame_count(1))
        assert len({event.stream for event in said}) == 2
        assert {len(event.stream) for event in said} == {64}

    run(main())


def test_a_slow_reader_holds_up_nobody_but_itself_and_then_is_let_go() -> None:
    async def main() -> None:
        settings = limited(turn_bytes=1 << 20, total_bytes=4 << 20, max_streams=8)
        app, speaker, _ = resuming(FakeServer(speech_s=60.0, speed=20.0), settings=settings)
        slow = await chat(app, seed=1).until(frame_count(3))
        slow.gate.clear()
        others = [chat(app, seed=seed) for seed in (2, 3)]
        for seed, other in zip((2, 3), others, strict=True):
            assert (await other.over()).speech == speaker.speech(seed)
        stream = app.store.get(slow.headers["x-omni-resume"])
        assert stream.turn.ended is None, "its turn waits for it"
        assert stream.turn.unsent <= (4 << 20) // 16 + 200_000
        await asyncio.sleep(31)
        assert stream.listener is None
        await asyncio.sleep(31)
        assert app.store.get(stream.id) is None

    run(main())


def test_a_slow_reader_that_reads_again_has_lost_nothing() -> None:
    async def main() -> None:
        settings = limited(turn_bytes=1 << 20, total_bytes=4 << 20, max_streams=8)
        app, speaker, _ = resuming(FakeServer(speech_s=60.0, speed=20.0), settings=settings)
        slow = await chat(app).until(frame_count(3))
        for _ in range(3):
            slow.gate.clear()
            await asyncio.sleep(20)
            slow.gate.set()
            await asyncio.sleep(0.5)
        await slow.over()
        assert (slow.speech, slow.end_reason) == (speaker.speech(1), "done")

    run(main())


def test_a_full_house_refuses_the_next_and_a_turn_that_is_over_makes_room() -> None:
    async def main() -> None:
        app, _, _ = resuming(settings=limited(max_streams=3))
        calls = [await chat(app, seed=seed).until(frame_count(3)) for seed in range(3)]
        full = await chat(app).over()
        assert (full.status, full.headers["retry-after"]) == (503, "1")
        assert "no more streams" in full.error
        plain = await chat(app, accept=None).over()
        assert plain.status == 200, "without frames the server serves whom it always did"
        await calls[0].over()
        assert (await chat(app).until(frame_count(1))).status == 200

    run(main())


@pytest.mark.slow
def test_many_ids_of_the_past_take_no_memory_without_bound() -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(speech_s=0.1), settings=limited(max_streams=1))
        first = await chat(app).over()
        later = [await chat(app).over() for _ in range(MAX_GONE + 4)]
        streams = [call.headers["x-omni-resume"] for call in (first, *later)]
        assert sum(map(app.store.is_gone, streams)) == MAX_GONE
        assert (await resume(app, first.headers["x-omni-resume"], 0).over()).status == 410, "known as ours"

    run(main())


def half_sent(app: Any, peer: str) -> Exchange:
    exchange = chat(app, peer=peer)
    exchange.request[0]["more_body"] = True
    return exchange


def test_half_sent_bodies_hold_no_place() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=limited(max_streams=4))
        slow = [half_sent(app, f"10.0.1.{n}") for n in range(4)]
        await asyncio.sleep(1)
        assert (await chat(app).over()).speech == speaker.speech(1)
        for exchange in slow:
            exchange.leave()
            await exchange.over()
        assert app.store.reserved == 0

    run(main())


def test_chats_begun_and_aborted_leave_room_for_other_addresses() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=limited(max_streams=8, max_streams_per_address=4))
        for _ in range(64):
            call = await chat(app, peer="10.0.1.1").until(frame_count(1))
            call.leave()
            await call.over()
        assert len(app.store) <= 4
        assert (await chat(app).over()).speech == speaker.speech(1)

    run(main())


def test_one_address_has_its_share_and_makes_room_only_among_its_own() -> None:
    async def main() -> None:
        app, _, _ = resuming(settings=limited(max_streams=8, max_streams_per_address=2))
        calls = [await chat(app, peer="10.0.1.1").until(frame_count(3)) for _ in range(2)]
        assert (await chat(app, peer="10.0.1.1").over()).status == 503
        assert (await chat(app).until(frame_count(1))).status == 200
        calls[0].leave()
        await calls[0].over()
        assert (await chat(app, peer="10.0.1.1").until(frame_count(1))).status == 200

    run(main())


def test_a_finished_turn_makes_room_in_a_share_before_one_that_goes_on() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=limited(max_streams_per_address=2))
        speaker.speech_s = 60.0
        cut = await chat(app).until(frame_count(20))
        cut.leave()
        await cut.over()
        speaker.speech_s = 1.0
        await chat(app).over()
        assert (await chat(app).until(frame_count(1))).status == 200
        assert (await resume(app, cut.headers["x-omni-resume"], 0).until(frame_count(1))).status == 206

    run(main())


def test_who_left_at_once_makes_room_where_there_is_none() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=limited(max_streams=4))
        for n in range(4):
            call = await chat(app, peer=f"10.0.1.{n}").until(lambda exchange: exchange.status == 200)
            call.leave()
            await call.over()
        assert len(app.store) == 4
        assert (await chat(app).over()).speech == speaker.speech(1)

    run(main())


@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer other"}])
def test_a_turn_is_for_the_key_it_began_with(sent: dict[str, str]) -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        key = {"Authorization": "Bearer mine"}
        call = await chat(app, headers=key).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        named = {"X-Omni-Resume": stream}
        strange = [
            post(app, "/v1/resume", {"stream": stream, "last_good_id": 3}, headers=sent),
            post(app, "/v1/rtx", {"stream": stream, "from_id": 0, "count": 3}, headers=sent),
            post(app, "/v1/realign", {"stream": stream, "shift_ms": 40.0}, headers=sent),
            Exchange(app, "GET", "/v1/resume", headers=sent | named),
            Exchange(app, "DELETE", "/v1/resume", headers=sent | named),
        ]
        assert [(await exchange.over()).status for exchange in strange] == [404] * 5
        assert {event.result for event in said} == {"unauthorized"}
        call.leave()
        body = {"stream": stream, "last_good_id": call.speech_ids[-1]}
        back = await post(app, "/v1/resume", body, headers=key).over()
        assert call.speech + back.speech == speaker.speech(1)

    run(main())


def test_ids_are_in_headers_and_in_no_url() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        assert [name for name, value in call.headers.items() if stream in value] == ["x-omni-resume"]
        headers = {"X-Omni-Resume": stream, "Last-Event-ID": "4"}
        back = await Exchange(app, "GET", "/v1/resume", headers=headers).until(frame_count(1))
        assert (back.status, back.speech_ids[0]) == (200, 5)
        for method in ("GET", "DELETE"):
            await Exchange(app, method, f"/v1/resume/{stream}", headers=headers).over()
        assert app.store.get(stream) is not None
        assert (await Exchange(app, "DELETE", "/v1/resume", headers=headers).over()).status == 204
        assert app.store.get(stream) is None

    run(main())


def test_junk_counts_apart_and_is_bounded_by_address() -> None:
    async def main() -> None:
        app, _, said = resuming(monotonic=iter(range(0, 10**9, 1000)).__next__)
        statuses = [(await post(app, "/v1/resume", b"{").over()).status for _ in range(50)]
        statuses += [(await resume(app, f"{n:043d}", 0, peer="10.0.9.9").over()).status for n in range(50)]
        assert statuses.count(429) >= 70
        assert {event.result for event in said} == {"junk"}

    run(main())


def test_attempts_of_one_return_are_one_return() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app).until(frame_count(10))
        stream, last = call.headers["x-omni-resume"], call.speech_ids[-1]
        call.leave()
        await call.over()
        for _ in range(3):
            attempt = await resume(app, stream, last).until(lambda exchange: exchange.status == 206)
            attempt.leave()
            await attempt.over()
        assert [(event.result, event.again) for event in said] == [
            ("hit", None),
            ("hit", True),
            ("hit", True),
        ]

    run(main())
