"""The state in one fact: what goes before what, whom it names, since when."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.events import T0
from omniwatch.live.state_line import state_of
from omniwatch.settings import Settings
from omniwatch.web import words

STARVED = {"symptom": "starved", "cause": "network"}


def row(slot: int, **changes: Any) -> dict[str, Any]:
    calm = {"slot": slot, "state": "speaking", "suffers": None, "silent_s": 0.0, "turn_t": T0 - 4}
    return calm | {"rules": {}, "rules_since": {}} | changes


def rules(state: str, since: float, rule: str = "CodecDrift") -> dict[str, Any]:
    return {"rules": {rule: state}, "rules_since": {rule: T0 + since}}


def source(**changes: Any) -> dict[str, Any]:
    well = {"name": "tail:/x", "up": True, "blind": False, "lag_s": 0.0, "error": "", "last_t": T0 - 3}
    return well | changes


DOWN = source(up=False, blind=True, error="denied")


@pytest.mark.parametrize(
    ("rows", "sources", "key", "level", "arguments", "since"),
    [
        ([], [source()], "idle", "well", {}, None),
        ([row(0), row(1)], [source()], "well", "well", {"count": 2}, None),
        ([row(0, state="away"), row(1)], [source()], "away", "well", {"slots": [0]}, None),
        (
            [row(3, **rules("pending", -2))],
            [source()],
            "pending",
            "suffers",
            {"rule": "CodecDrift", "slots": [3]},
            -2,
        ),
        ([row(0), row(1, silent_s=6.4)], [source()], "silent", "suffers", {"slots": [1], "seconds": 6}, -6.4),
        ([row(0, silent_s=4.0)], [source()], "well", "well", {"count": 1}, None),
        (
            [row(2, suffers=STARVED), row(0, silent_s=9.0), row(1, suffers=STARVED)],
            [source()],
            "suffers",
            "suffers",
            {"slots": [1, 2], **STARVED},
            -4,
        ),
        (
            [
                row(4, **rules("firing", -9)),
                row(1, suffers=STARVED, **rules("firing", -30)),
                row(2, **rules("pending", -99)),
            ],
            [source()],
            "firing",
            "suffers",
            {"rule": "CodecDrift", "slots": [1, 4]},
            -30,
        ),
        (
            [row(0, **rules("firing", -9)), row(1, **rules("firing", -60, "TokenRTT"))],
            [DOWN, source()],
            "firing",
            "suffers",
            {"rule": "TokenRTT", "slots": [1]},
            -60,
        ),
        ([row(0)], [DOWN, source()], "half_blind", "blind", {"source": "tail:/x", "why": "denied"}, -3),
        (
            [row(0, **rules("firing", -9))],
            [DOWN],
            "blind",
            "blind",
            {"source": "tail:/x", "why": "denied"},
            -3,
        ),
        ([], [source(up=False, last_t=0.0)], "waiting", "blind", {"source": "tail:/x"}, None),
        ([row(0, **rules("firing", -9))], [source(lag_s=12.0)], "behind", "blind", {"seconds": 12}, -12),
    ],
)
def test_the_state_is_the_worst_that_is_known(rows, sources, key, level, arguments, since):
    assert state_of(rows, sources, T0, Settings()) == {
        "key": key,
        "level": level,
        "arguments": arguments,
        "since": None if since is None else pytest.approx(T0 + since),
    }
    assert f"state.{key}" in words.load()["en"]
