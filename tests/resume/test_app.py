"""The middleware as a client sees it: frames asked for, a stream named, taken up again where it stopped."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from helpers.asgi import Exchange, chat, frame_count, resume, resuming
from omniwatch import events
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.frames import add


def test_an_uncut_turn_is_every_sample_and_every_word_and_says_that_it_is_whole() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).over()
        assert call.status == 200
        assert call.headers["content-type"] == "application/vnd.omniwatch.frames"
        assert call.headers["x-model"] == "speaker"
        assert (call.headers["x-omni-cache-win"], call.headers["x-omni-client-win"]) == ("75", "150")
        assert (call.headers["x-omni-grace-s"], call.headers["x-omni-first-id"]) == ("30", "0")
        assert len(call.headers["x-omni-resume"]) >= 43
        assert call.speech == speaker.speech(1)
        assert call.text == speaker.text(1)
        assert call.speech_ids == list(range(101))
        assert call.end_reason == "done"
        assert said == []

    run(main())


@pytest.mark.parametrize("first_id", [0, 5, 2**32 - 20])
def test_a_client_that_comes_back_hears_the_next_frame(first_id: int) -> None:
    async def main() -> None:
        app, speaker, said = resuming(first_id=lambda: first_id)
        call = await chat(app).until(frame_count(30))
        call.leave()
        await call.over()
        await asyncio.sleep(1.0)
        last = call.speech_ids[-1]
        back = await resume(app, call.headers["x-omni-resume"], last, outage_ms=1000.0).over()
        assert back.status == 206
        assert back.headers["content-type"] == call.headers["content-type"]
        assert back.headers["content-range"] == f"frames {add(last, 1)}-*/*"
        assert back.headers["x-omni-result"] == "hit"
        assert call.speech_ids + back.speech_ids == [add(first_id, i) for i in range(101)]
        assert call.speech + back.speech == speaker.speech(1)
        (event,) = said
        assert isinstance(event, events.Resume)
        assert (event.result, event.last_good_id, event.first_id) == ("hit", last, add(last, 1))
        assert (event.outage_ms, event.replayed, event.stream) == (1000.0, 0, "10.0.0.1")

    run(main())


def test_frames_that_were_sent_and_not_heard_are_sent_again_with_the_text_after_the_last_good_one() -> None:
    async def main() -> None:
        app, _, said = resuming(FakeServer(words_per_chunk=3))
        call = await chat(app).until(frame_count(30))
        call.leave()
        back = await resume(app, call.headers["x-omni-resume"], 11).over()
        assert back.speech_ids == list(range(12, 101))
        everything = await chat(app).over()
        assert back.places == everything.places[everything.places.index((11, 1)) :]
        assert said[0].replayed == call.speech_ids[-1] - 11
        part = await resume(app, call.headers["x-omni-resume"], 91, part=2).over()
        assert part.places[0] == (91, 3)

    run(main())


def test_older_than_the_cache_the_whole_turn_comes_again() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).until(frame_count(90))
        call.leave()
        newest = app.store.get(call.headers["x-omni-resume"]).turn.last_id
        back = await resume(app, call.headers["x-omni-resume"], newest - 76).over()
        assert (back.status, back.headers["x-omni-result"]) == (206, "replay")
        assert back.headers["content-range"] == "frames 0-*/*"
        assert back.speech == speaker.speech(1)
        again = await resume(app, call.headers["x-omni-resume"], 100 - 75).over()
        assert again.headers["x-omni-result"] == "hit"
        assert again.headers["content-range"] == "frames 26-100/*"
        assert [event.result for event in said] == ["replay", "hit"]
        assert said[0].replayed == newest + 1

    run(main())


def test_ahead_of_what_was_sent_and_unknown_and_gone_are_told_apart() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        ahead = await resume(app, stream, call.speech_ids[-1] + 30).over()
        assert (ahead.status, ahead.headers["content-range"]) == (416, f"frames */{len(call.speech_ids)}")
        unknown = await resume(app, "A" * 43, 1).over()
        assert (unknown.status, unknown.error) == (404, "there is no such stream")
        await call.over()
        await asyncio.sleep(31)
        gone = await resume(app, stream, 3).over()
        assert (gone.status, gone.error) == (410, "this stream is held no longer")
        assert [event.result for event in said] == ["ahead", "unknown", "gone"]

    run(main())


def test_of_two_at_once_the_newer_wins_and_the_older_is_ended_cleanly() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        call = await chat(app).until(frame_count(10))
        newer = resume(app, call.headers["x-omni-resume"], 4)
        await call.over()
        assert call.ended
        assert call.end_reason == "superseded"
        await newer.until(frame_count(20))
        newest = resume(app, call.headers["x-omni-resume"], 7)
        assert (await newer.over()).end_reason == "superseded"
        await newest.over()
        assert newest.end_reason == "done"
        assert newest.speech_ids == list(range(8, 101))

    run(main())


def test_of_two_in_one_breath_the_older_is_answered_before_it_is_ended() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).until(frame_count(10))
        call.leave()
        await call.over()
        stream = call.headers["x-omni-resume"]
        older, newer = [resume(app, stream, call.speech_ids[-1]) for _ in range(2)]
        await older.over()
        assert (older.status, older.headers["x-omni-result"]) == (206, "hit")
        assert (older.ended, older.end_reason, older.speech_ids) == (True, "superseded", [])
        await newer.over()
        assert call.speech + newer.speech == speaker.speech(1)
        assert [event.result for event in said] == ["hit"], "one return"

    run(main())


def test_after_the_end_what_is_left_and_the_end_itself_can_still_be_fetched() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        call = await chat(app).over()
        stream = call.headers["x-omni-resume"]
        tail = await resume(app, stream, 99).over()
        assert (tail.speech_ids, tail.end_reason) == ([100], "done")
        assert tail.headers["content-range"] == "frames 100-100/*"
        nothing = await resume(app, stream, 100).over()
        assert (nothing.speech_ids, nothing.end_reason) == ([], "done")
        assert nothing.headers["content-range"] == "frames */*"

    run(main())


def test_a_client_that_heard_nothing_yet_takes_up_the_turn_from_its_first_place() -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        call = await chat(app).until(lambda exchange: exchange.status == 200)
        call.leave()
        back = await resume(app, call.headers["x-omni-resume"], 2**32 - 1).over()
        assert (back.status, back.headers["x-omni-result"]) == (206, "hit")
        assert (back.speech, back.text) == (speaker.speech(1), speaker.text(1))

    run(main())


def test_generation_goes_on_while_the_client_is_away_and_is_cancelled_after_the_grace() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(FakeServer(speech_s=100.0, speed=1.0))
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        call.leave()
        await asyncio.sleep(29.5)
        assert (speaker.left, app.store.get(stream).turn.last_id) == (0, 379)
        await asyncio.sleep(1.5)
        assert speaker.left == 1
        assert app.store.get(stream) is None
        assert app.store.size == 0

    run(main())


def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        bye = await Exchange(app, "DELETE", "/v1/resume", headers={"X-Omni-Resume": stream}).over()
        await call.over()
        assert bye.status == 204
        await asyncio.sleep(1)
        assert speaker.left == 1
        assert (await resume(app, stream, 3).over()).status == 410

    run(main())


def test_an_application_that_does_not_heed_its_client_leaving_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await asyncio.sleep(1e6)
        finally:
            cancelled.set()

    async def main() -> None:
        app, _, _ = resuming(deaf)
        call = await chat(app).until(lambda exchange: exchange.status == 200)
        call.leave()
        await asyncio.sleep(36)
        assert cancelled.is_set()

    run(main())


@pytest.mark.parametrize(("fail_after", "reason"), [(8, "error")])
def test_a_turn_that_the_model_server_breaks_off_says_so(fail_after: int, reason: str) -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(fail_after=fail_after))
        call = await chat(app).over()
        assert call.end_reason == reason
        assert len(call.speech_ids) == fail_after * 4
        back = await resume(app, call.headers["x-omni-resume"], 20).over()
        assert (back.end_reason, back.speech_ids) == (reason, list(range(21, 32)))

    run(main())


def test_an_answer_that_stops_without_its_end_mark_is_called_cut() -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: {}\n\ndata: {", "more_body": False})

    async def main() -> None:
        app, _, _ = resuming(half)
        assert (await chat(app).over()).end_reason == "cut"

    run(main())


def test_heartbeats_follow_what_was_said_soon_and_then_seldom() -> None:
    """They are what tells the server's TCP that a packet before them was lost."""

    async def main() -> None:
        app, _, _ = resuming(FakeServer(first_s=1.5))
        loop = asyncio.get_running_loop()
        call, bodies, said_at = chat(app), [], []
        while not call.speech_ids:
            seen = len(call.messages)
            await call.until(lambda exchange, seen=seen: len(exchange.messages) > seen)
            bodies += [message for message in call.messages[seen:] if message.get("body")]
            said_at += [loop.time()] * (len(bodies) - len(said_at))
        pauses = [after - before for before, after in itertools.pairwise(said_at)]
        assert pauses[:4] == pytest.approx([0.02, 0.04, 0.06, 0.25])
        call.leave()
        await call.over()

    run(main())
