"""Recordings of a real server's video websocket (tests/data/wire), read as events, and what each must give."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from helpers.paths import DATA
from omniwatch import events

WIRE = DATA / "wire"
WAV_HEADER_BYTES = 44
BYTES_PER_MS = 48
"""24 kHz, 16 bit, one channel."""


class TurnNumbers(NamedTuple):
    """One turn of a recording: all in milliseconds, read with a playout buffer of 80 ms."""

    first_audio: float
    audio: float
    underrun: float
    last: float
    lowest: float
    highest: float


EXPECTED: dict[str, list[TurnNumbers]] = {
    "default-chunks": [
        TurnNumbers(320.2, 4800, 1037.6, -1040.1, -1040.1, -2.7),
        TurnNumbers(316.1, 4800, 1022.1, -1021.3, -1022.0, 0.8),
    ],
    "small-chunks": [
        TurnNumbers(319.9, 7920, 0.0, 0.4, -0.6, 4.3),
        TurnNumbers(315.9, 7920, 0.0, 0.1, -0.3, 3.7),
    ],
    "slow-generation": [TurnNumbers(436.5, 19120, 704.4, -705.0, -705.0, 0.2)],
    "real-engine": [
        TurnNumbers(949.5, 7816.9, 1932.6, -1931.8, -1932.6, -28.2),
        TurnNumbers(541.3, 7816.9, 1980.9, -1980.9, -1981.7, -0.4),
    ],
}


def assert_as_expected(got: TurnNumbers, expected: TurnNumbers) -> None:
    """First audio, speech and underrun to the digit; drift within 5 ms, for single frames came in with jitter."""
    assert got[:3] == pytest.approx(expected[:3], abs=0.06)
    assert got[3:] == pytest.approx(expected[3:], abs=5.0)


def recording(name: str) -> list[dict[str, object]]:
    """Return the records of a recording: `mono`, `wall`, `dir`, `scope`, `path`, `type` and `text` or `body`."""
    with gzip.open(WIRE / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def wire_events(name: str, stream: str = "call") -> Iterator[events.Event]:
    """Yield what the recording says, in the words of the contract."""
    turn = 0
    for record in recording(name):
        message = json.loads(str(record.get("text") or "{}"))
        t, kind = float(str(record["mono"])), message.get("type")
        if kind == "video.frame":
            yield events.Video(t=t, stream=stream, pts_ms=message["pts_ms"])
        elif kind == "video.query":
            turn += 1
            yield events.TurnStart(t=t, stream=stream, turn=turn)
        elif kind == "response.output_audio.delta":
            samples = len(base64.b64decode(message["data"])) - WAV_HEADER_BYTES
            yield events.Audio(t=t, stream=stream, dur_ms=samples / BYTES_PER_MS, turn=turn)
        elif kind == "response.output_audio.done":
            yield events.TurnEnd(t=t, stream=stream, turn=turn, reason="completed")
