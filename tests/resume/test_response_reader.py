"""A model server's answer that the middleware cannot read on: the turn ends, the client is told, the log says why."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from helpers.asgi import chat, resuming
from omniwatch.desk.link.virtual import run
from omniwatch.settings import Resume, Settings

ENDLESS = b"data: " + b"x" * 200_000


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """Begins an event that never ends, and goes on for long."""
    await receive()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
    )
    await send({"type": "http.response.body", "body": b'data: {"choices": []}\n\n', "more_body": True})
    for _ in range(3):
        await send({"type": "http.response.body", "body": ENDLESS, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize("accept", ["application/vnd.omniwatch.frames", "text/event-stream;omniwatch=resume"])
def test_an_event_that_is_longer_than_a_turn_may_be_ends_it(
    caplog: pytest.LogCaptureFixture, accept: str
) -> None:
    async def main() -> None:
        app, _, _ = resuming(endless, settings=Settings(resume=Resume(turn_bytes=300_000)))
        with caplog.at_level(logging.ERROR, "omniwatch"):
            call = await chat(app, accept=accept).over()
        assert b'"reason":"error"' in call.body.replace(b" ", b"")
        assert b"xxx" not in call.body
        (record,) = caplog.records
        assert "cannot be resumed from here on" in record.getMessage()
        assert "xxx" not in record.getMessage()

    run(main())
