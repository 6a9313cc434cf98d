"""Events as tests write them, and a stream table to feed them to."""

from __future__ import annotations

import msgspec

from omniwatch import events as ev
from omniwatch.core.stream import Stream
from omniwatch.core.streams import StreamTable
from omniwatch.settings import Settings, Streams

T0 = 1_700_000_000.0


def table(**streams: float) -> StreamTable:
    return StreamTable(Settings(streams=msgspec.convert(streams, Streams)))


def feed(target: StreamTable, *events: ev.Event) -> Stream:
    for event in events:
        target.apply(event)
    return target.state.streams[events[-1].stream]


def audio(t: float, stream: str = "a", **fields: object) -> ev.Audio:
    return ev.Audio(t=T0 + t, stream=stream, **fields)


def asked(t: float, turn: ev.Turn = 1, stream: str = "a") -> ev.TurnStart:
    return ev.TurnStart(t=T0 + t, stream=stream, turn=turn)


def ended(t: float, turn: ev.Turn = 1, reason: str = "completed", stream: str = "a") -> ev.TurnEnd:
    return ev.TurnEnd(t=T0 + t, stream=stream, turn=turn, reason=reason)


def video(t: float, pts_ms: float, stream: str = "a") -> ev.Video:
    return ev.Video(t=T0 + t, stream=stream, pts_ms=pts_ms)


def outcomes(target: StreamTable) -> dict[str, int]:
    return {outcome: n for outcome, n in target.totals.turns.items() if n}


EXAMPLES = [
    {
        "ev": "stream_start",
        "t": 1.0,
        "stream": "a",
        "peer": "10.0.0.7:4431",
        "codec_hz": 12.5,
        "kind": "video",
    },
    {"ev": "video", "t": 1.0, "stream": "a", "pts_ms": 33.4, "frame_id": "f1"},
    {"ev": "turn", "t": 1.0, "stream": "a", "turn": "t1", "chars": 12, "ear": "kernel", "w": "x", "n": 4},
    {
        "ev": "audio",
        "t": 1.0,
        "stream": "a",
        "codes": [1, 2, 3, 4],
        "checksum": 4,
        "expert_mask": 15,
        "silent": True,
        "turn": 7,
    },
    {"ev": "played", "t": 1.0, "stream": "a", "played_ms": 400, "turn": "t1", "source": "player"},
    {
        "ev": "arrived",
        "t": 1.0,
        "stream": "a",
        "turn": "t1",
        "ms": 320.0,
        "ago_ms": 40.0,
        "rtt_ms": 103.5,
        "waiting": 9180,
        "retrans": 2,
        "window_ms": 12.0,
        "paused_ms": 1.5,
        "ear": "sent",
    },
    {"ev": "text", "t": 1.0, "stream": "a", "turn": "t1"},
    {"ev": "underrun", "t": 1.0, "stream": "a", "turn": "t1", "ms": 240, "source": "player"},
    {"ev": "interrupt", "t": 1.0, "stream": "a", "turn": "t1"},
    {"ev": "fault", "t": 1.0, "stream": "a", "code": "response_already_active"},
    {"ev": "turn_end", "t": 1.0, "stream": "a", "turn": "t1", "reason": "completed", "chars": 96},
    {"ev": "rtt", "t": 1.0, "stream": "a", "rtt_ms": 412.5},
    {"ev": "realign", "t": 1.0, "stream": "a", "shift_ms": -48},
    {"ev": "rtx", "t": 1.0, "stream": "a", "from_id": 9, "count": 3, "result": "hit"},
    {"ev": "resume", "t": 1.0, "stream": "a", "last_good_id": 8, "result": "hit", "extra_ms": 40.0},
    {"ev": "stream_end", "t": 1.0, "stream": "a", "reason": "closed"},
]
"""One or more of each event, as JSON values."""
