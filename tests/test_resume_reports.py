"""What else is asked on behalf of a stream, and what its events tell."""

from __future__ import annotations

import asyncio
import json

from asgi import chat, frame_count, post, resume, resuming
from omniwatch import events
from omniwatch.link.speaker import Speaker
from omniwatch.link.virtual import run


def test_rtx_sends_just_those_frames() -> None:
    async def main() -> None:
        app, speaker, said = resuming()
        call = await chat(app).until(frame_count(30))
        stream = call.headers["x-omni-resume"]
        again = await post(app, "/v1/rtx", {"stream": stream, "from_id": 5, "count": 3}).over()
        assert (again.status, again.headers["content-range"]) == (206, "frames 5-7/*")
        assert int(again.headers["content-length"]) == len(again.body)
        assert again.speech == speaker.speech(1)[5 * 3840 : 8 * 3840]
        sent = len(call.speech_ids)
        part = await post(app, "/v1/rtx", {"stream": stream, "from_id": sent - 2, "count": 5}).over()
        assert part.speech_ids == [sent - 2, sent - 1]
        ahead = await post(app, "/v1/rtx", {"stream": stream, "from_id": sent + 20, "count": 1}).over()
        assert ahead.status == 416
        assert [event.result for event in said] == ["hit", "partial", "miss"]
        await call.over()
        assert call.end_reason == "done", "an rtx takes nothing from the stream itself"

    run(main())


def test_a_realignment_is_reported() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app, headers={"X-Omni-Stream": "glasses-7"}).until(frame_count(1))
        body = {"stream": call.headers["x-omni-resume"], "shift_ms": -63.5}
        assert (await post(app, "/v1/realign", body).over()).status == 204
        assert said == [events.Realign(t=1000.0, stream="glasses-7", shift_ms=-63.5)]

    run(main())


def test_the_plain_form_names_its_stream_in_the_header_or_is_told_how_to() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        call = await chat(app).until(frame_count(10))
        plain = await post(app, "/v1/resume", {"last_good_id": 4}).over()
        assert plain.status == 400
        assert "X-Omni-Resume" in plain.error
        named = post(
            app, "/v1/resume", {"last_good_id": 4}, headers={"X-Omni-Resume": call.headers["x-omni-resume"]}
        )
        assert (await named.over()).speech_ids == list(range(5, 101))

    run(main())


def test_extra_delay_is_how_much_later_the_next_frame_plays() -> None:
    async def main() -> None:
        app, _, said = resuming(Speaker(speed=2.0))
        call = await chat(app).until(frame_count(40))
        call.leave()
        await asyncio.sleep(2.0)
        stream, last = call.headers["x-omni-resume"], call.speech_ids[-1]
        for due_ms in (300.0, -200.0):
            back = await resume(app, stream, last, due_ms=due_ms, rtt_ms=100.0, outage_ms=2000.0).until(
                frame_count(1)
            )
            back.leave()
        assert [event.extra_ms for event in said] == [0.0, 300.0]

    run(main())


def test_a_frame_that_was_not_made_yet_is_not_late_because_of_the_cut() -> None:
    async def main() -> None:
        app, _, said = resuming(Speaker(speed=0.5, chunk_frames=(4, 25)))
        call = await chat(app).until(frame_count(4))
        call.leave()
        await asyncio.sleep(0.5)
        back = await resume(app, call.headers["x-omni-resume"], 3, due_ms=-400.0, rtt_ms=100.0).until(
            frame_count(1)
        )
        assert (back.speech_ids[0], said[0].extra_ms) == (4, 0.0)

    run(main())


def test_every_answer_is_json_of_the_servers_own_form_when_it_refuses() -> None:
    async def main() -> None:
        app, _, _ = resuming()
        bad = await post(app, "/v1/resume", b"{").over()
        assert bad.status == 400
        error = json.loads(bad.body)["error"]
        assert error["type"] == "invalid_request_error"
        assert error["code"] == 400

    run(main())


def test_reports_of_realignments_are_bounded() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app).until(frame_count(1))
        body = {"stream": call.headers["x-omni-resume"], "shift_ms": 50.0}
        statuses = [(await post(app, "/v1/realign", body).over()).status for _ in range(100)]
        assert set(statuses) == {204, 429}
        assert len(said) == statuses.count(204) <= 21

    run(main())
