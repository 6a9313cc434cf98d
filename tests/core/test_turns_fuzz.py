"""Any valid events, in any order: every turn that is over is judged without an error, and what is shown of it is sound."""

from __future__ import annotations

import json
import random

import pytest

from core.test_streams_fuzz import some_event
from omniwatch import events as ev
from omniwatch.core.turns import Judged
from omniwatch.core.verdict import CAUSES
from omniwatch.explain.kept import shown
from omniwatch.explain.text import Bad, Filter
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings, Streams

pytestmark = pytest.mark.slow

EVENTS = 30_000
STEPS_S = (0.0, 0.01, 0.08, 0.08, 0.3, 1.0)
SELDOM_S = (-0.5, 70.0, -100.0)


def test_any_valid_events_in_any_order():
    rng = random.Random(28)
    found: list[Judged] = []
    table = RecordedTable(Settings(streams=Streams(client_buffer_ms=2000)), found.append)
    t = 1e9
    for _ in range(EVENTS):
        t = max(0.0, t + rng.choice(SELDOM_S if rng.random() < 0.01 else STEPS_S))
        event = some_event(rng, t)
        if rng.random() < 0.1:
            event = ev.Text(t=t, stream=event.stream, turn=rng.choice(["t1", "t2", 3, 4]))
        elif isinstance(event, ev.Resume):
            event.result = "hit"
        table.apply(event)
    table.finish()
    verdicts = [verdict for judged in found for verdict in judged.verdicts]
    assert {verdict.symptom for verdict in verdicts} >= {"late", "starved", "silent", "overrun"}
    assert all(verdict.cause in CAUSES[verdict.symptom] for verdict in verdicts)
    bad = Bad(Filter())
    for judged in found:
        bad.take(shown(judged))
    assert "nan" not in bad.report(1e9)
    assert "inf" not in bad.report(1e9)
    json.dumps(bad.as_json(1e9), allow_nan=False)
