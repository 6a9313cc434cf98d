"""A client has one name, whichever of the two middlewares tells of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from helpers.asgi import Exchange, frame_count, post
from omniwatch import events, frames
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.resume import Resume
from omniwatch.tap import Tap

AUDIO = {"modalities": ["text", "audio"]}


class Served:
    """The model server with both; `said` is what resumption tells, `tapped` what the tap does."""

    def __init__(self, path: Path) -> None:
        self.said: list[events.Event] = []
        self._path = path
        self._tap = Tap(FakeServer(), environ={"OMNIWATCH_EVENTS": str(path)})
        self.app = Resume(self._tap, emit=self.said.append, environ={})

    async def realigned(self, **request: Any) -> None:
        """A chat whose client then makes good 50 ms, while the chat goes on."""
        body = json.dumps({"stream": True} | request).encode()
        call = Exchange(
            self.app, "POST", "/v1/chat/completions", headers={"Accept": frames.MEDIA_TYPE}, body=body
        )
        await call.until(frame_count(1))
        stream = call.headers["x-omni-resume"]
        assert (
            await post(self.app, "/v1/realign", {"stream": stream, "shift_ms": 50.0}).over()
        ).status == 204

    async def tapped(self) -> list[events.Event]:
        """What the tap told of streams, once its server has stopped."""
        await self._tap({"type": "lifespan"}, AsyncMock(), AsyncMock())
        found = [events.decode(line) for line in self._path.read_bytes().splitlines()]
        return [event for event in found if isinstance(event, events.StreamStart)]


def names(told: list[events.Event]) -> list[str]:
    return [event.stream for event in told]


def test_clients_of_one_address_at_once_are_told_apart_in_the_same_way(tmp_path: Path) -> None:
    async def main() -> None:
        served = Served(tmp_path / "events.jsonl")
        await served.realigned(seed=1, **AUDIO)
        await served.realigned(seed=2, **AUDIO)
        assert names(served.said) == names(await served.tapped()) == ["10.0.0.1", "10.0.0.1#2"]

    run(main())


@pytest.mark.parametrize("size", [10, 1 << 20, 3 << 20])
def test_a_user_behind_a_long_request_has_its_name(tmp_path: Path, size: int) -> None:
    async def main() -> None:
        served = Served(tmp_path / "events.jsonl")
        await served.realigned(messages="x" * size, user="alice", **AUDIO)
        assert names(served.said) == names(await served.tapped()) == ["user=alice"]

    run(main())


@pytest.mark.parametrize(("size", "name"), [(3 << 20, "user=alice"), (9 << 20, "10.0.0.1")])
def test_alone_resumption_reads_as_much_of_a_request_as_the_tap_would(size: int, name: str) -> None:
    async def main() -> None:
        said: list[events.Event] = []
        app = Resume(FakeServer(), emit=said.append, environ={})
        pieces = json.dumps({"stream": True, "messages": "x" * size, "user": "alice", **AUDIO}).encode()
        call = Exchange(app, "POST", "/v1/chat/completions", headers={"Accept": frames.MEDIA_TYPE})
        # A request's first piece is the last of the list.
        parts = [pieces[at : at + 65536] for at in range(0, len(pieces), 65536)]
        call.request[:] = [
            {"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts[::-1]
        ]
        await call.until(frame_count(1))
        body = {"stream": call.headers["x-omni-resume"], "shift_ms": 50.0}
        await post(app, "/v1/realign", body).over()
        assert names(said) == [name]

    run(main())
