"""Any valid events, in any order: the table never raises, stays bounded, and what it exposes is sound."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from omniwatch import events as ev
from omniwatch.core.state import State
from omniwatch.core.streams import TRACKED_PER_SLOT, StreamTable
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.settings import Settings, Streams

pytestmark = pytest.mark.slow

EVENTS = 60_000
SLOTS = 3


def some_event(rng: random.Random, t: float) -> ev.Event:
    stream = f"s{int(rng.expovariate(0.3))}"
    turn = rng.choice([None, "t1", "t2", 3, 4])
    frame_id = rng.choice([None, 0, 1, 5, rng.randrange(300), rng.randrange(2**32), 2**32 - 1])
    millis = rng.choice([0.0, -1e12, 1e12, rng.uniform(-1e5, 1e5)])
    codes = rng.choice([None, [], [1, 2, 3, 4], [65535] * 3, [7] * 16])
    head = {"t": t, "stream": stream}
    kinds = (
        lambda: ev.StreamStart(**head, peer=rng.choice([None, "", "10.0.0.1:5", "x" * 300])),
        lambda: ev.Video(**head, pts_ms=millis),
        lambda: ev.TurnStart(**head, turn=turn or "t1", ear=rng.choice([None, "kernel", "sent"])),
        lambda: ev.Audio(
            **head,
            turn=turn,
            dur_ms=rng.choice([80.0, 240.0, 0.001, 600_000.0]),
            pts_ms=rng.choice([None, millis]),
            video_pts_ms=rng.choice([None, millis]),
            frame_id=frame_id,
            checksum=rng.choice([None, 0, 4]),
            codes=codes,
            expert_mask=rng.choice([None, 0, 255]),
        ),
        lambda: ev.Played(**head, turn=turn, played_ms=millis),
        lambda: ev.Arrived(
            **head,
            turn=turn or "t1",
            ms=rng.choice([0.0, 80.0, 800.0, abs(millis)]),
            ago_ms=rng.choice([0.0, 40.0, abs(millis)]),
            rtt_ms=rng.choice([None, 0.0, 90.0, abs(millis)]),
            waiting=rng.choice([0, 9000, 2**63 - 1]),
            ear=rng.choice([None, None, "sent"]),
        ),
        lambda: ev.Underrun(**head, turn=turn, ms=abs(millis), source=rng.choice(["player", "model"])),
        lambda: ev.TurnEnd(**head, turn=turn or "t1", reason=rng.choice(["completed", "", "\0"])),
        lambda: ev.Rtt(**head, rtt_ms=abs(millis)),
        lambda: ev.Realign(**head, shift_ms=millis),
        lambda: ev.Rtx(**head, from_id=frame_id or 0, count=2**32 - 1, result="hit"),
        lambda: ev.Resume(**head, last_good_id=0, result="?", replayed=2**32 - 1, extra_ms=abs(millis)),
        lambda: ev.StreamEnd(**head, reason="x"),
    )
    return rng.choices(kinds, weights=[1, 8, 3, 20, 2, 12, 1, 3, 1, 1, 1, 1, 1])[0]()


def test_any_valid_events_in_any_order():
    rng = random.Random(20)
    settings = Settings(streams=Streams(max_streams=SLOTS))
    table = StreamTable(settings)
    t, grown = 1e9, {}
    for i in range(EVENTS):
        t = max(
            0.0,
            t + rng.choice([0.0, 0.01, 0.08, 0.08, 1.0, -0.5, 70.0, -100.0, 1e9 if i % 9973 == 0 else 0.0]),
        )
        table.apply(some_event(rng, t))
        if i % 50 == 0:
            table.advance(t + rng.choice([0.0, 0.0, -10.0, 100.0]))
        if i % 500 == 0:
            slots = [stream.slot for stream in table.streams if stream.slot >= 0]
            assert len(set(slots)) == len(slots) <= SLOTS
            assert len(table.state.streams) <= SLOTS * TRACKED_PER_SLOT
            for family in collect(ScrapeSnapshot(t, table)):
                for sample in family.samples:
                    key = (sample.name, *sorted(sample.labels.items()))
                    assert not math.isnan(sample.value), key
                    if family.type in ("counter", "histogram") and not sample.name.endswith("_created"):
                        assert sample.value >= grown.get(key, 0), f"{key} fell"
                        grown[key] = sample.value
            again = msgspec.msgpack.decode(msgspec.msgpack.encode(table.state), type=State)
            assert again == table.state
            table = StreamTable(settings, again)
    assert all(table.totals.turns[outcome] for outcome in ("completed", "interrupted", "abandoned"))
    assert table.totals.audio_frames_lost
    assert table.totals.audio_frames_late
