"""What else is asked on behalf of a stream, and what its events tell."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.asgi import Exchange, chat, frame_count, post, resume, resuming
from omniwatch import events
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.resume import Resume


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


def test_an_attempt_that_a_later_one_has_overtaken_is_no_failure_of_the_return() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app).until(frame_count(10))
        stream = call.headers["x-omni-resume"]
        back = await resume(app, stream, 8, attempt=3).until(frame_count(1))
        late = await resume(app, stream, 8, attempt=2).over()
        assert late.status == 409
        assert "has come before it" in late.error
        assert app.refused[409] == 1
        assert [event.result for event in said] == ["hit"]
        await back.over()

    run(main())


def test_a_realignment_is_reported() -> None:
    async def main() -> None:
        app, _, said = resuming()
        call = await chat(app, headers={"X-Omni-Stream": "glasses-7"}).until(frame_count(1))
        body = {"stream": call.headers["x-omni-resume"], "shift_ms": -63.5}
        assert (await post(app, "/v1/realign", body).over()).status == 204
        assert said == [events.Realign(t=1000.0, m=said[0].m, stream="name=glasses-7", shift_ms=-63.5)]

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
        app, _, said = resuming(FakeServer(speed=2.0))
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


@pytest.mark.parametrize("away_s", [3.0, 15.0])
def test_a_frame_that_was_made_too_long_ago_to_be_remembered_is_late_all_the_same(away_s: float) -> None:
    async def main() -> None:
        app, _, said = resuming(FakeServer(speech_s=60, speed=2.0))
        call = await chat(app).until(frame_count(20))
        call.leave()
        await asyncio.sleep(away_s)
        stream, last = call.headers["x-omni-resume"], call.speech_ids[-1]
        await resume(app, stream, last, rest=True, due_ms=(1 - away_s) * 1000, rtt_ms=50.0).until(
            frame_count(1)
        )
        assert said[0].extra_ms == pytest.approx((away_s - 1) * 1000 + 50)

    run(main())


def test_a_frame_that_was_not_made_yet_is_not_late_because_of_the_cut() -> None:
    async def main() -> None:
        app, _, said = resuming(FakeServer(speed=0.5, chunk_frames=(4, 25)))
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


def test_a_page_of_another_origin_may_come_back_where_the_model_server_lets_it_begin() -> None:
    async def main() -> None:
        speaker = FakeServer()

        async def open_to_pages(scope: Any, receive: Any, send: Any) -> None:
            if scope["method"] == "OPTIONS":
                await send(
                    {"type": "http.response.start", "status": 204, "headers": [(b"x-preflight", b"1")]}
                )
                await send({"type": "http.response.body", "body": b""})
                return

            async def opened(message: Any) -> None:
                if message["type"] == "http.response.start":
                    allowed = [(b"access-control-allow-origin", b"*"), (b"vary", b"Origin")]
                    message = {**message, "headers": [*message["headers"], *allowed]}
                await send(message)

            await speaker(scope, receive, opened)

        app, _, _ = resuming(open_to_pages)
        assert (await Exchange(app, "OPTIONS", "/v1/resume").over()).headers == {"x-preflight": "1"}
        call = await chat(app).until(frame_count(5))
        back = await resume(app, call.headers["x-omni-resume"], 2).until(frame_count(1))
        for answer in (call, back):
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "x-omni-resume" in answer.headers["access-control-expose-headers"]
            names = [name for name, _ in answer.raw_headers]
            assert names.count(b"vary") == 1

    run(main())


def test_resume_settings_fall_back_to_defaults(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        config = tmp_path / "omniwatch.yaml"
        config.write_text("frames: {cache_win: 50}\nresume: {grace_s: 12}\n")
        environ = {"OMNIWATCH_CONFIG": str(config), "OMNIWATCH_EVENTS": str(tmp_path / "events.jsonl")}
        call = await chat(Resume(FakeServer(), environ=environ)).until(frame_count(1))
        assert (call.headers["x-omni-cache-win"], call.headers["x-omni-grace-s"]) == ("50", "12")
        config.write_text("resume: {grace_s: long}\n")
        for _ in ("does not hold", "is not there"):
            call = await chat(Resume(FakeServer(), environ=environ)).until(frame_count(1))
            assert (call.headers["x-omni-cache-win"], call.headers["x-omni-grace-s"]) == ("75", "30")
            config.unlink(missing_ok=True)
        told = [record.getMessage() for record in caplog.records if record.name == "omniwatch.resume.app"]
        told = [message.removeprefix("settings not usable, so the defaults apply: ") for message in told]
        assert [text.partition(": ")[0] for text in told] == ["omniwatch.yaml", str(config)]
        assert "resume.grace_s: expected a number > 0" in told[0]

    run(main())
