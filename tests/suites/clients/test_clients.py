"""Pipecat's and LiveKit's own realtime clients talk to an application behind the tap: turns, and speech to the sample."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.general_server import GeneralServer, Script
from helpers.general_session import begin, created, delta, done, updated
from helpers.recording_server import serving
from helpers.scripted_tap import Step, answers, read_events
from omniwatch import events as ev
from omniwatch.tap import Tap
from suites.clients.installation import PINS, directory, install

BYTES_PER_MS = 48
STARTED = answers(0, type="input_audio_buffer.speech_started", event_id="e", item_id="u", audio_start_ms=0)
STOPPED = answers(0, type="input_audio_buffer.speech_stopped", event_id="e", item_id="u", audio_end_ms=9)
COMMITTED = answers(0, type="input_audio_buffer.committed", event_id="e", item_id="u", previous_item_id=None)
BARGED_IN = {"status": "cancelled", "status_details": {"type": "cancelled", "reason": "turn_detected"}}
USAGE = {
    "total_tokens": 2,
    "input_tokens": 1,
    "output_tokens": 1,
    "input_token_details": {"text_tokens": 1, "audio_tokens": 0, "cached_tokens": 0},
    "output_token_details": {"text_tokens": 0, "audio_tokens": 1},
}
WHOLE: dict[str, Any] = {"output": [], "status_details": None, "usage": USAGE}
"""Fields of a response without which these clients do not read it."""


def answer(response: str, *steps: Step | str, **ending: Any) -> Iterator[Step | str]:
    """One answer, with the events by which these clients go: what it says, what is awaited within it, how it ends."""
    item_id = f"item_{response}"
    item: dict[str, Any] = {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    place = {"event_id": "e", "response_id": response, "output_index": 0}
    part = {**place, "item_id": item_id, "content_index": 0}
    yield begin(0, response, **WHOLE)
    yield answers(0, type="response.output_item.added", item=item, **place)
    yield answers(0, type="conversation.item.added", event_id="e", previous_item_id=None, item=item)
    yield answers(0, type="response.content_part.added", part={"type": "audio", "transcript": ""}, **part)
    yield from steps
    yield answers(0, type="response.output_audio.done", **part)
    said = {**item, "status": "completed"}
    yield answers(0, type="response.output_item.done", item=said, **place)
    yield done(0, response, **{**WHOLE, "output": [said], **ending})


def script() -> Script:
    """The first answer is asked for, VAD asks for the others; in the second one the user speaks up."""
    speaks = "input_audio_buffer.append"
    spoke = (STOPPED, COMMITTED)
    return [
        *(created(0), "session.update", updated(0), "response.create"),
        *answer("r1", delta(0, 400, "r1", "item_r1"), delta(0, 80.5, "r1", "item_r1")),
        *(speaks, STARTED, *spoke),
        *answer(
            "r2", delta(0, 2000, "r2", "item_r2"), speaks, STARTED, "conversation.item.truncate", **BARGED_IN
        ),
        *spoke,
        *answer("r3", delta(0, 200, "r3", "item_r3")),
    ]


@pytest.mark.parametrize("name", PINS)
def test_a_clients_dialogue_gives_its_turns_and_speech_to_the_sample(tmp_path, name):
    python = install(directory(), name)
    path = tmp_path / "events.jsonl"
    program = Path(__file__).with_name(f"{name}_client.py")
    server = GeneralServer(script())
    with serving(Tap(server, environ={"OMNIWATCH_EVENTS": str(path)})) as port:
        talked = subprocess.run(
            [python, program, str(port)], capture_output=True, text=True, timeout=90, check=False
        )
    assert talked.returncode == 0, talked.stderr
    events = read_events(path)
    ms: Counter[ev.Turn | None] = Counter()
    for event in events:
        if isinstance(event, ev.Audio):
            ms[event.turn] += event.dur_ms
    turns = [(ms[event.turn], event.reason) for event in events if isinstance(event, ev.TurnEnd)]
    assert turns == [(480.5, "completed"), (2000, "interrupted"), (200, "completed")]
    assert sum(isinstance(event, ev.TurnStart) for event in events) == 3
    assert float(talked.stdout.splitlines()[-1]) == sum(ms.values()) * BYTES_PER_MS, "what the client heard"
    (cut,) = [event for event in events if isinstance(event, ev.Played) and event.turn == 2]
    assert cut.source == "framework"
    assert 250 < cut.played_ms < 2000, "the client spoke up 300 ms after it heard the first"
    assert [event.turn for event in events if isinstance(event, ev.Interrupt)][-1] == 2
