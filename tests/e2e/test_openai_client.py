"""The `openai` package's own realtime client talks to an application behind the tap: turns, and speech to the sample."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection as Connection

from helpers.general_server import GeneralServer, Script
from helpers.general_session import add_item, begin, created, delta, done, speech, updated
from helpers.recording_server import serving
from helpers.scripted_tap import answers, pcm16, read_events
from omniwatch import events as ev
from omniwatch.tap import Tap

VAD = {"turn_detection": {"type": "server_vad"}}
STARTED = answers(0, type="input_audio_buffer.speech_started", event_id="e", item_id="u", audio_start_ms=0)
STOPPED = answers(0, type="input_audio_buffer.speech_stopped", event_id="e", item_id="u", audio_end_ms=9)
COMMITTED = answers(0, type="input_audio_buffer.committed", event_id="e", item_id="u")
BARGED_IN = {"status": "cancelled", "status_details": {"type": "cancelled", "reason": "turn_detected"}}
CANCELLED = {"status": "cancelled", "status_details": {"type": "cancelled", "reason": "client_cancelled"}}


def answer(response: str = "r1", *ms: float, **ending: Any) -> Script:
    """One answer that says so much and ends."""
    return [begin(0, response), *(delta(0, one, response) for one in ms), done(0, response, **ending)]


def error(event: str) -> Any:
    said = {"type": "invalid_request_error", "code": "response_already_active", "message": "busy"}
    return answers(0, type="error", event_id="e", error={**said, "event_id": event})


class Dialogue(NamedTuple):
    """What both sides do, and what comes of it: of each turn the milliseconds and the outcome, and interruptions."""

    server: list[Script]
    client: Callable[[Connection, Heard], Awaitable[None]]
    turns: list[tuple[float, str]]
    interruptions: int = 0
    bytes_per_ms: int = 48


class Heard:
    """What the client heard: samples by response."""

    def __init__(self, connection: Connection) -> None:
        self.size_bytes: Counter[str] = Counter()
        self._events = aiter(connection)

    async def until(self, kind: str) -> Any:
        async for event in self._events:
            if event.type == "response.output_audio.delta":
                self.size_bytes[event.response_id] += len(base64.b64decode(event.delta))
            if event.type == kind:
                return event
        raise AssertionError(f"the connection was closed before {kind}")


async def commits(connection: Connection, heard: Heard) -> None:
    await heard.until("session.created")
    await connection.session.update(
        session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    )
    await connection.input_audio_buffer.append(audio=pcm16(100))
    await connection.input_audio_buffer.commit()
    await connection.response.create()
    await heard.until("response.done")


async def talks(connection: Connection, heard: Heard) -> None:
    await connection.input_audio_buffer.append(audio=pcm16(100))
    await heard.until("response.done")


async def barges_in(connection: Connection, heard: Heard) -> None:
    await talks(connection, heard)
    await talks(connection, heard)


async def cancels(connection: Connection, heard: Heard) -> None:
    await connection.response.create()
    await heard.until("response.output_audio.delta")
    await connection.response.cancel()
    await heard.until("response.done")


async def truncates(connection: Connection, heard: Heard) -> None:
    await connection.response.create()
    event = await heard.until("response.output_audio.delta")
    await connection.conversation.item.truncate(item_id=event.item_id, content_index=0, audio_end_ms=250)
    await heard.until("response.done")


async def asks_twice(connection: Connection, heard: Heard) -> None:
    await connection.response.create()
    await connection.response.create(response={"conversation": "none"})
    await heard.until("response.done")
    await heard.until("response.done")


async def asks_in_between(connection: Connection, heard: Heard) -> None:
    await connection.response.create(event_id="first")
    await heard.until("response.output_audio.delta")
    await connection.response.create(event_id="second")
    await heard.until("error")
    await heard.until("response.done")


async def asks_again(connection: Connection, heard: Heard) -> None:
    await connection.response.create()
    await heard.until("response.output_audio.delta")
    await heard.until("session.created")
    await connection.response.create()
    await heard.until("response.done")


ASKED = "response.create"
SPOKE = "input_audio_buffer.append"
TRUNCATED = "conversation.item.truncate"
ITEM = add_item(0, "i1")
DIALOGUES = {
    "commit": Dialogue(
        [[created(0, **VAD), "input_audio_buffer.commit", COMMITTED, ASKED, *answer("r1", 400, 80.5)]],
        commits,
        [(480.5, "completed")],
    ),
    "VAD": Dialogue(
        [[created(0), SPOKE, STARTED, STOPPED, COMMITTED, *answer("r1", 320)]], talks, [(320, "completed")]
    ),
    "barge-in": Dialogue(
        [
            [
                *(created(0), SPOKE, STARTED, STOPPED, COMMITTED, begin(0), delta(0, 60_000)),
                *(STARTED, done(0, **BARGED_IN), STOPPED, COMMITTED, *answer("r2", 200)),
            ]
        ],
        barges_in,
        [(60_000, "interrupted"), (200, "completed")],
        interruptions=1,
    ),
    "cancel": Dialogue(
        [[created(0), ASKED, begin(0), delta(0, 60_000), "response.cancel", done(0, **CANCELLED)]],
        cancels,
        [(60_000, "cancelled")],
        interruptions=1,
    ),
    "truncate": Dialogue(
        [[created(0), ASKED, begin(0), ITEM, delta(0, 60_000), TRUNCATED, delta(0, 80), done(0)]],
        truncates,
        [(60_080, "interrupted")],
        interruptions=1,
    ),
    "two responses at once": Dialogue(
        [
            [
                *(created(0), ASKED, ASKED, begin(0), begin(0, "aside", conversation_id=None)),
                *(delta(0, 100), delta(0, 70, "aside"), delta(0, 100), delta(0, 70, "aside")),
                *(done(0, "aside"), done(0)),
            ]
        ],
        asks_twice,
        [(200, "completed"), (140, "completed")],
    ),
    "error midway": Dialogue(
        [[created(0), ASKED, begin(0), delta(0, 100), ASKED, error("second"), delta(0, 100), done(0)]],
        asks_in_between,
        [(200, "completed"), (0, "failed")],
    ),
    "reconnect": Dialogue(
        [[created(0), ASKED, begin(0), delta(0, 100), 1011], [created(0), ASKED, *answer("r2", 300)]],
        asks_again,
        [(100, "failed"), (300, "completed")],
    ),
    "G.711": Dialogue(
        [[created(0), updated(0, **speech({"type": "audio/pcmu"})), ASKED, *answer("r1", 100, 50)]],
        commits,
        [(900, "completed")],
        bytes_per_ms=8,
    ),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_gives_its_turns_and_speech_to_the_sample(tmp_path, name):
    dialogue = DIALOGUES[name]
    path = tmp_path / "events.jsonl"
    sizes = []

    async def talk(port: int) -> None:
        client = AsyncOpenAI(api_key="key", base_url=f"http://127.0.0.1:{port}/v1")
        async with client.realtime.connect(
            model="m",
            websocket_connection_options={"proxy": None},
            on_reconnecting=lambda event: None,
            initial_delay=0.01,
        ) as connection:
            heard = Heard(connection)
            await asyncio.wait_for(dialogue.client(connection, heard), 20)
            sizes.extend(heard.size_bytes.values())
        await client.close()

    server = GeneralServer(*dialogue.server)
    with serving(Tap(server, environ={"OMNIWATCH_EVENTS": str(path)})) as port:
        asyncio.run(talk(port))
    events = read_events(path)
    ms: Counter[tuple[str, ev.Turn]] = Counter()
    for event in events:
        if isinstance(event, ev.Audio) and event.turn is not None:
            ms[event.stream, event.turn] += event.dur_ms
    ends = sorted(
        (event.stream != events[0].stream, event.turn, event.reason, event.stream)
        for event in events
        if isinstance(event, ev.TurnEnd)
    )
    assert [(round(ms[stream, turn], 6), reason) for _, turn, reason, stream in ends] == dialogue.turns
    assert sum(isinstance(event, ev.TurnStart) for event in events) >= 1
    assert sum(isinstance(event, ev.Interrupt) for event in events) == dialogue.interruptions
    spoken = [one for one in dialogue.turns if one[0]]
    assert [size / dialogue.bytes_per_ms for size in sizes] == [ms for ms, _ in spoken], (
        "what the client heard"
    )
