"""What is none of the middleware's business passes as if it were not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helpers.asgi import Exchange, chat, frame_count, resuming
from omniwatch import frames
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "text/event-stream;q=0", "text/event-stream", "text/*"]
)
def test_what_asks_for_no_frames_passes_untouched(accept: str | None) -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        with_it = await chat(app, accept=accept).over()
        without = await chat(speaker, accept=accept).over()
        assert with_it.messages == without.messages

    run(main())


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, [(b"content-type", b"application/json")]),
        (400, [(b"content-type", b"text/event-stream")]),
        (200, [(b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")]),
        (204, []),
    ],
)
def test_an_answer_that_is_no_speech_passes_untouched_though_frames_were_asked_for(
    status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    async def plain(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": message["body"], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def main() -> None:
        app, _, _ = resuming(plain)
        assert (await chat(app).over()).messages == (await chat(plain).over()).messages
        assert (len(app.store), app.store.reserved) == (0, 0)

    run(main())


def test_an_application_that_fails_before_it_answers_fails_as_without() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("before the answer")

    async def main() -> None:
        app, _, _ = resuming(broken)
        with pytest.raises(RuntimeError, match="before the answer"):
            await chat(app).over()
        assert app.store.reserved == 0

    run(main())


def test_a_client_that_leaves_before_the_answer_is_seen_leaving() -> None:
    seen: list[str] = []

    async def thinking(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        seen.append((await receive())["type"])

    async def main() -> None:
        app, _, _ = resuming(thinking)
        call = chat(app)
        await asyncio.sleep(0)
        call.leave()
        await call.over()
        assert seen == ["http.disconnect"]

    run(main())


QUESTION = b'{"stream": true}'


@pytest.mark.parametrize(
    ("padding", "cut"),
    [("1", 1), *[(odd, 0) for odd in ("", "0", "2", "16", "-1", "1.0", "x", "\xb9", "9" * 99)]],
)
def test_padding_behind_a_question_is_neither_waited_for_nor_seen(padding: str, cut: int) -> None:
    seen: list[tuple[bytes, bytes, bool]] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        length = dict(scope["headers"])[b"content-length"]
        seen.append((length, message["body"], message["more_body"]))

    async def main() -> None:
        length = len(QUESTION) + 1
        headers = {"Accept": frames.MEDIA_TYPE, "Content-Length": str(length), "X-Omni-Padding": padding}
        call = Exchange(resuming(noting)[0], "POST", "/v1/chat/completions", headers=headers)
        call.request = [{"type": "http.request", "body": QUESTION, "more_body": True}]
        await call.over()
        assert seen == [(b"%d" % (length - cut), QUESTION, not cut)]

    run(main())


def test_padding_may_come_with_the_question_and_without_a_length_there_is_none() -> None:
    async def echoing(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"], "more_body": False})

    async def main() -> None:
        for body, length, passed in (
            (QUESTION + b"\n", "17", QUESTION),
            (b"\n", "1", b""),
            *((b"{}", odd, b"{}") for odd in ("", "0", "x", "-2", "9" * 5000)),
        ):
            headers = {
                "Accept": frames.MEDIA_TYPE,
                "Content-Length": length,
                "X-Omni-Padding": "1",
            }
            call = Exchange(resuming(echoing)[0], "POST", "/v1/chat/completions", headers=headers, body=body)
            assert (await call.over()).body == passed

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/resume", 400),
        ("DELETE", "/v1/resume", 400),
        ("PUT", "/v1/resume", 405),
        ("PUT", "/v1/rtx", 405),
        ("GET", "/v1/resume/x", 418),
        ("GET", "/v1/models", 418),
        ("GET", "/v1/resumed", 418),
        ("POST", "/v1/rtx/x", 418),
        ("GET", "/v1/chat/completions", 418),
    ],
)
def test_other_paths_are_the_applications(method: str, path: str, status: int) -> None:
    async def teapot(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> None:
        app, _, _ = resuming(teapot)
        assert (
            await Exchange(app, method, path, headers={"Accept": "text/event-stream"}).over()
        ).status == status

    run(main())


def test_shutdown_ends_what_is_held() -> None:
    async def main() -> None:
        speaker = FakeServer()
        received: list[str] = []

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                received.extend([(await receive())["type"], (await receive())["type"]])
            else:
                await speaker(scope, receive, send)

        app, _, _ = resuming(application)
        call = await chat(app).until(frame_count(5))
        call.leave()
        await call.over()
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        await app({"type": "lifespan"}, receive, None)
        await asyncio.sleep(1)
        assert received == ["lifespan.startup", "lifespan.shutdown"]
        assert (len(app.store), speaker.left) == (0, 1)

    run(main())


@pytest.mark.parametrize("accept", [frames.MEDIA_TYPE, "text/event-stream;omniwatch=resume"])
def test_an_event_that_is_not_text_passes_as_it_is_and_the_log_quotes_nothing_of_it(
    accept: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = b'{"choices": [{"index": 0, "delta": {"content": "what was said \xff"}}], "modality": "text"}'

    async def garbled(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: %s\n\n" % said, "more_body": False})

    async def main() -> None:
        app, _, _ = resuming(garbled)
        assert said in (await chat(app, accept=accept).over()).body
        assert "what was said" not in caplog.text

    run(main())
