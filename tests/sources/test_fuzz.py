"""A million mutated lines through the tail and the decoder, in pieces of any size."""

from __future__ import annotations

import random
import re
from pathlib import Path

import psutil
import pytest

from helpers.event_files import append
from omniwatch.events import (
    MAX_LINE_BYTES,
    Audio,
    Event,
    Invalid,
    Played,
    Realign,
    Resume,
    Rtt,
    Rtx,
    StreamEnd,
    StreamStart,
    TurnEnd,
    TurnStart,
    Unknown,
    Video,
    decode,
    decode_lines,
    encode,
)
from omniwatch.sources.tail import Tail

pytestmark = pytest.mark.slow

LINES = 1_000_000
BATCH = 5_000
SEED = 9842
EVENTS: tuple[Event, ...] = (
    StreamStart(t=1.5, stream="s", peer="[::1]:80", kind="duplex", w="w", n=0),
    Video(t=1.5, stream="s", pts_ms=12.5, frame_id=7, w="w", n=1),
    TurnStart(t=1.5, stream="s", turn="t1", chars=20),
    Audio(
        t=1.5, stream="语音", turn=3, frame_id=9, checksum=515, codes=[1, 2, 3, 4], expert_mask=3, w="w", n=2
    ),
    Audio(t=1e9, stream="s", pts_ms=-80.0, video_pts_ms=0.0, dur_ms=2000.0),
    Played(t=1.5, stream="s", played_ms=960.0),
    TurnEnd(t=1.5, stream="s", turn=0, reason="done"),
    Rtt(t=1.5, stream="s", rtt_ms=812.5),
    Realign(t=1.5, stream="s", shift_ms=-42.0),
    Rtx(t=1.5, stream="s", from_id=2**32 - 1, count=3, result="sent"),
    Resume(t=1.5, stream="s", last_good_id=5, result="replayed", extra_ms=120.0),
    StreamEnd(t=1.5, stream="s", reason="left"),
)
SEEDS = [*map(encode, EVENTS), b'{"ev":"new","w":"w","n":3}\n', b"\n", b"{}\n", b"null\n"]
SPLINTERS = [
    *(
        b"\0",
        b"\0\0\0",
        b"\n",
        b"\r\n",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
    ),
    *(
        b"\\u0000",
        b"\\ud800",
        b"-",
        b"1e999",
        b"NaN",
        b"null",
        b"99999999999999999999",
        b'"ev":"audio",',
        b"[" * 3000,
    ),
]


def mutate(rng: random.Random) -> bytes:
    line = rng.choice(SEEDS)
    kind = rng.randrange(12)
    if kind < 4:
        return line
    at = rng.randrange(len(line))
    if kind < 6:
        return line[:at] + bytes((rng.randrange(256),)) + line[at + 1 :]
    if kind < 8:
        return line[:at] + rng.choice(SPLINTERS) + line[at + (kind == 7) :]
    to = rng.randrange(len(line) + 1)
    if kind == 8:
        return line[:at] + line[to:]
    if kind == 9:
        return line[:at] + rng.choice(SEEDS)[-to:]
    if kind == 10:
        return line[:-1] + rng.choice(SEEDS)
    return (
        line
        if rng.randrange(5000)
        else line[:-1] + b" " * (MAX_LINE_BYTES - len(line) + rng.randrange(4)) + b"\n"
    )


@pytest.mark.timeout(900)
def test_the_tail_returns_what_the_file_holds_and_the_decoder_judges_each_line(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    tail.read(1)
    process = psutil.Process()
    outcomes: set[object] = set()
    size_before = 0
    for batch in range(LINES // BATCH):
        if batch == 20:
            size_before = process.memory_info().rss
        data = b"".join(mutate(rng) for _ in range(BATCH)) + b"\n"
        if batch % 10 == 0:
            path.unlink(missing_ok=True)
        tail.invalid.update(nul=0, oversize=0, truncated=0)

        at, got = 0, []
        while at < len(data):
            size = rng.choice((1, 50, 5_000, 100_000, 400_000))
            append(path, data[at : at + size])
            at += size
            got.append(tail.read(rng.choice((1, 100_000, 1_000_000))))
        while not tail.caught_up:
            got.append(tail.read(1_000_000))

        pieces = re.split(rb"[\0\n]", data)
        lines = [piece for piece in pieces if piece and len(piece) <= MAX_LINE_BYTES]
        assert [line for line in b"".join(got).split(b"\n") if line] == lines
        too_long = sum(len(piece) > MAX_LINE_BYTES for piece in pieces)
        assert tail.invalid == {"nul": len(re.findall(rb"\0+", data)), "oversize": too_long, "truncated": 0}

        one_by_one = [decode(line) for line in lines if line.strip()]
        assert [event for chunk in got for event in decode_lines(chunk)] == one_by_one
        outcomes.update(event.reason if isinstance(event, Invalid) else type(event) for event in one_by_one)
    assert process.memory_info().rss < size_before + (32 << 20)
    assert outcomes == {"encoding", "json", "fields", Unknown, *map(type, EVENTS)}
