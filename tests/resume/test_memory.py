"""What turns may take of the memory: bounded for each and in all, and a turn that is too long for it ends all the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers.asgi import chat, frame_count, heard, resume, resuming
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.frames import MEDIA_TYPE
from omniwatch.settings import Resume as Limits
from omniwatch.settings import Settings


def limited(**limits: Any) -> Settings:
    return Settings(resume=Limits(**limits))


@pytest.mark.slow
def test_memory_is_bounded_per_stream_and_in_all() -> None:
    async def main() -> None:
        settings = limited(turn_bytes=2 << 20, total_bytes=6 << 20, max_streams=16)
        app, speaker, _ = resuming(FakeServer(speech_s=120.0, speed=10.0), settings=settings)
        calls = [chat(app, seed=seed) for seed in range(16)]
        for call in calls[::2]:
            await call.until(frame_count(3))
            call.leave()
        largest = largest_turn = 0
        while not all(call.task.done() for call in calls):
            await asyncio.sleep(0.25)
            largest = max(largest, app.store.size)
            largest_turn = max([largest_turn, *(s.turn.size for s in app.store)])
        assert largest <= 6 << 20
        assert largest_turn <= (2 << 20) + 20_000
        assert [call.speech == speaker.speech(seed) for seed, call in enumerate(calls)][1::2] == [True] * 8
        assert app.store.size == sum(s.turn.size for s in app.store)
        await asyncio.sleep(61)
        assert (app.store.size, len(app.store)) == (0, 0)

    run(main())


def test_frames_past_the_bound_of_one_turn_are_gone_and_its_window_is_not() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(
            FakeServer(speech_s=60.0, speed=10.0), settings=limited(turn_bytes=1 << 20)
        )
        call = await chat(app).over()
        stream = call.headers["x-omni-resume"]
        last = call.speech_ids[-1]
        assert (await resume(app, stream, last - 76).over()).status == 410
        hit = await resume(app, stream, last - 75).over()
        assert hit.speech == speaker.speech(1)[(last - 74) * 3840 :]

    run(main())


async def words(scope: Any, receive: Any, send: Any) -> None:
    """A long answer in text alone."""
    await receive()
    head = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"text/event-stream")],
    }
    await send(head)
    for number in range(2000):
        said = {
            "choices": [{"index": 0, "delta": {"content": f" word {number:5}" + "." * 600}}],
            "modality": "text",
        }
        body = b"data: %s\n\n" % json.dumps(said).encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


@pytest.mark.parametrize("accept", [MEDIA_TYPE, "text/event-stream;omniwatch=resume"])
def test_a_long_turn_of_text_alone_ends_and_lets_go_of_what_was_sent(accept: str) -> None:
    async def main() -> None:
        app, _, _ = resuming(words, settings=limited(turn_bytes=300_000))
        call = chat(app, accept=accept)
        await asyncio.wait_for(call.over(), 600)
        text = call.text if accept == MEDIA_TYPE else heard(call.body)[1]
        assert text.split()[1::2] == [f"{number}" + "." * 600 for number in range(2000)]
        assert app.store.size <= 300_000
        # Nothing was spoken: all of it is after the frame before the first, and its beginning is gone.
        stream = call.headers["x-omni-resume"]
        assert (await resume(app, stream, 2**32 - 1, part=1000).over()).status == 410
        assert (await resume(app, stream, 2**32 - 1, part=1990).over()).status == 206

    run(main())


def test_a_turn_that_is_made_all_at_once_is_heard_from_its_beginning() -> None:
    async def at_once(scope: Any, receive: Any, send: Any) -> None:
        said: list[Any] = []

        async def collect(message: Any) -> None:
            said.append(message)

        await words(scope, receive, collect)
        for message in said:
            await send(message)

    async def main() -> None:
        app, _, _ = resuming(at_once, settings=limited(turn_bytes=300_000))
        call = chat(app)
        await asyncio.wait_for(call.over(), 600)
        assert len(call.text.split()) == 4000

    run(main())


def test_turns_whose_windows_together_are_too_much_all_end_whole() -> None:
    async def main() -> None:
        settings = limited(turn_bytes=300_000, total_bytes=1 << 20)
        app, speaker, _ = resuming(settings=settings)
        calls = [chat(app, seed=seed) for seed in range(12)]
        await asyncio.wait({call.task for call in calls}, timeout=600)
        assert [call.end_reason for call in calls] == ["done"] * 12
        assert all(call.speech == speaker.speech(seed) for seed, call in enumerate(calls))
        assert app.store.size <= 1 << 20
        assert app.store.size == sum(stream.turn.size for stream in app.store)

    run(main())
