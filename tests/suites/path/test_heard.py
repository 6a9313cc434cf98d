"""What is shown of a listener is what he had: a real server, a real path, every kind of client."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import pytest

from suites.path.listening import Listening
from suites.path.run import Judged, judge, run
from suites.path.speaking import Speaking

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="namespaces need root, and /dev/net/tun"
)

PLAN = [
    ("clean", "websocket", "cubic", 0.0, 5),
    ("4g-10pct", "deflate", "bbr", 0.0, 6),
    ("4g-10pct", "client", "cubic", 0.0, 6),
    ("bursts", "sse", "bbr", 0.0, 6),
    ("outage-1.5s", "websocket", "cubic", 0.0, 6),
    ("outage-3s", "client", "cubic", 0.0, 6),
    ("uplink-queue", "websocket", "cubic", 0.0, 6),
    ("down-500k", "sse", "bbr", 0.0, 4),
    ("handover", "websocket", "cubic", 0.0, 6),
    ("acks-lost", "deflate", "cubic", 0.0, 6),
]
"""Scenario, kind of client, congestion control, camera's skew in ppm, turns of ten seconds."""
AT_ONCE = 3
SEED = int(os.environ.get("PATH_SEED", "1"))
CHUNK_MS = 320.0


def _of(scenario: str, kind: str, congestion: str, ppm: float, turns: int) -> list[Judged]:
    speaking = Speaking(
        host="", events="", resumable=kind == "client", congestion=congestion, chunk_ms=CHUNK_MS
    )
    listening = Listening(host="", kind=kind, turns=turns, camera_ppm=ppm)
    return judge(run(scenario, SEED, speaking, listening))


@pytest.fixture(scope="module")
def turns() -> list[Judged]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [one for judged in pool.map(lambda row: _of(*row), PLAN) for one in judged]
    for one in found:
        sys.stdout.write(
            f"{one.scenario:14}{one.kind:10} underrun {one.underrun_shown_s:6.2f} of {one.underrun_true_s:6.2f}"
            f"  first {one.first_shown_s:5.2f} of {one.first_true_s:5.2f} (question {one.question_s:5.2f})"
            f"  drift off by {_off(one):6.0f} ms in {len(one.looks)} looks\n"
        )
    return found


def _off(one: Judged) -> float:
    return median(abs(look.shown_ms - look.true_ms) for look in one.looks) if one.looks else 0.0


def _share(holds: list[bool]) -> float:
    return sum(holds) / len(holds)


def test_there_are_as_many_turns_as_asked(turns: list[Judged]) -> None:
    assert len(turns) >= 0.95 * sum(row[-1] for row in PLAN)


def test_the_underrun_shown_is_the_listeners(turns: list[Judged]) -> None:
    near = [
        abs(one.underrun_shown_s - one.underrun_true_s) <= max(0.15, 0.1 * one.underrun_true_s)
        for one in turns
    ]
    assert _share(near) >= 0.95


def test_the_drift_shown_is_the_listeners(turns: list[Judged]) -> None:
    looks = [look for one in turns for look in one.looks]
    off = [abs(look.shown_ms - look.true_ms) for look in looks]
    assert median(off) <= 25
    bound = [max(CHUNK_MS + 50, 0.1 * abs(look.true_ms)) for look in looks]
    assert _share([one <= most for one, most in zip(off, bound, strict=True)]) >= 0.95
    same_side = [(abs(look.shown_ms) > 60) == (abs(look.true_ms) > 60) for look in looks]
    assert _share(same_side) >= 0.98


def test_the_round_trip_shown_is_the_listeners(turns: list[Judged]) -> None:
    least: dict[str, float] = {}
    for one in turns:
        least[one.scenario] = min(one.question_s, least.get(one.scenario, one.question_s))
    seen = [one for one in turns if one.question_s <= least[one.scenario] + 0.1]
    held_up = len(turns) - len(seen)
    sys.stdout.write(f"{held_up} of {len(turns)} questions were held up on their way: no server sees that\n")
    off = [abs(one.first_shown_s - one.first_true_s) for one in seen]
    assert median(off) <= 0.030
    assert quantiles(off, n=10)[-1] <= 0.120
