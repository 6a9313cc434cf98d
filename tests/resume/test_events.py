"""A turn as server-sent events, for clients that know nothing of frames."""

from __future__ import annotations

import pytest

from helpers.asgi import Exchange, chat, heard, post, resuming
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.settings import Resume, Settings


def test_an_ordinary_client_hears_the_same() -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        call = await chat(app, accept="text/event-stream;omniwatch=resume").over()
        assert call.headers["content-type"] == "text/event-stream"
        assert heard(call.body) == (speaker.speech(1), speaker.text(1))
        assert call.body.endswith(b"data: [DONE]\n\n")

    run(main())


@pytest.mark.parametrize("way", ["post", "get", "again"])
def test_last_event_id_goes_on_exactly_there(way: str) -> None:
    async def main() -> None:
        app, speaker, _ = resuming(FakeServer(words_per_chunk=2))
        call = await chat(app, accept="text/event-stream;omniwatch=resume").until(
            lambda e: b"id: 20\n" in e.body
        )
        call.leave()
        await call.over()
        # The last event may have come in half.
        whole = call.body[: call.body.rindex(b"\n\n", 0, -40) + 2]
        last = whole[whole.rindex(b"id: ") + 4 :].split(b"\n")[0].decode()
        stream = call.headers["x-omni-resume"]
        headers = {"Last-Event-ID": last, "X-Omni-Resume": stream, "Accept": "text/event-stream"}
        if way == "post":
            back = await post(app, "/v1/resume", b"", headers=headers).over()
        elif way == "get":
            back = await Exchange(app, "GET", "/v1/resume", headers=headers).over()
        else:
            back = await chat(app, accept=None, headers=headers).over()
            assert speaker.turns == 1
        assert back.status == (206 if way == "post" else 200)
        assert heard(whole + back.body) == (speaker.speech(1), speaker.text(1))

    run(main())


def test_a_client_without_an_id_hears_the_turn_from_its_beginning() -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        call = await chat(app, accept="text/event-stream;omniwatch=resume").until(
            lambda e: b"id: 20\n" in e.body
        )
        headers = {"X-Omni-Resume": call.headers["x-omni-resume"]}
        back = await Exchange(app, "GET", "/v1/resume", headers=headers).over()
        assert heard(back.body)[0] == speaker.speech(1)

    run(main())


def test_what_ends_early_says_so_in_an_event_of_its_own() -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(fail_after=3))
        call = await chat(app, accept="text/event-stream;omniwatch=resume").over()
        assert call.body.endswith(b'event: end\ndata: {"reason": "error"}\n\n')

    run(main())


def test_a_client_can_tell_a_slow_model_from_a_lost_network() -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(first_s=1.1))
        call = await chat(app, accept="text/event-stream;omniwatch=resume").until(
            lambda e: b"audio" in e.body
        )
        # Three soon after the head, then one each quarter of a second.
        assert call.body.count(b": still here\n\n") == 3 + 3

    run(main())


def test_where_no_more_can_be_held_it_is_served_as_without() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=Settings(resume=Resume(max_streams=1)))
        held = await chat(app).until(lambda e: e.status == 200)
        plain = await chat(app, accept="text/event-stream;omniwatch=resume").over()
        assert (
            plain.messages
            == (await chat(speaker, accept="text/event-stream;omniwatch=resume").over()).messages
        )
        assert (await held.over()).end_reason == "done"

    run(main())


def test_ids_can_be_left_to_those_who_ask_for_binary_frames() -> None:
    async def main() -> None:
        app, speaker, _ = resuming(settings=Settings(resume=Resume(event_streams=False)))
        plain = await chat(app, accept="text/event-stream;omniwatch=resume").over()
        assert (
            plain.messages
            == (await chat(speaker, accept="text/event-stream;omniwatch=resume").over()).messages
        )
        assert (await chat(app).over()).end_reason == "done"

    run(main())
