"""Speech that fits through a bad network: what a listener with our client has of it, as PCM and as Opus, over real paths.

PATH_ALL=1 in the environment runs all combinations with a hundred turns each, in an hour; else those that have a bound.
The figures go to standard output as a table, and to build/path/air.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helpers.paths import CLONE
from suites.path.air import ALL, CLIENTS, NARROW, Cell, Found, measure_all, table, write

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/net/tun").exists(),
        reason="namespaces need root, and /dev/net/tun",
    ),
    pytest.mark.timeout(9000),
]

SEED = int(os.environ.get("PATH_SEED", "1"))
PART = [
    *(Cell("4g-10pct", "cubic", codec, client, 8, 4) for codec in ("pcm16", "opus") for client in CLIENTS),
    Cell("bursts", "cubic", "opus", "python", 8, 4),
    Cell("handover", "cubic", "opus", "cpp", 8, 4),
    Cell(NARROW, "cubic", "opus", "python", 1, 4),
    Cell("4g-10pct", "bbr", "pcm16", "python", 8, 4),
]
"""Scenario, congestion control, codec, client; so many clients at once, each with so many turns."""
CELLS = ALL if os.environ.get("PATH_ALL") else PART
LOSSY = "4g-10pct"
MOST_UNDERRUN_S = 0.1
MOST_FIRST_S = 0.35
LEAST_SAVING = 12.0


@pytest.fixture(scope="module")
def found() -> list[Found]:
    measured = measure_all(CELLS, SEED)
    write(CLONE / "build" / "path" / "air.json", measured)
    sys.stdout.write(f"\n{table(measured)}\n")
    return measured


def _of(found: list[Found], codec: str, congestion: str, client: str = "") -> list[Found]:
    chosen = [
        one
        for one in found
        if (one.scenario, one.codec, one.congestion) == (LOSSY, codec, congestion)
        and client in ("", one.client)
    ]
    assert chosen
    return chosen


def test_each_combination_has_its_turns_and_none_failed(found: list[Found]) -> None:
    assert len(found) == len(CELLS)
    assert [
        (one, cell) for one, cell in zip(found, CELLS, strict=True) if one.turns < cell.clients * cell.turns
    ] == []


def test_opus_is_heard_without_gaps_where_a_tenth_of_the_packets_is_lost(found: list[Found]) -> None:
    for one in _of(found, "opus", "cubic"):
        assert one.underrun_s <= MOST_UNDERRUN_S, one


def test_opus_begins_soon_on_a_kept_connection(found: list[Found]) -> None:
    for one in _of(found, "opus", "cubic"):
        assert one.first_p90_s <= MOST_FIRST_S, one


@pytest.mark.parametrize("client", CLIENTS)
def test_opus_takes_a_twelfth_of_the_bytes(found: list[Found], client: str) -> None:
    (pcm,), (opus,) = _of(found, "pcm16", "cubic", client), _of(found, "opus", "cubic", client)
    assert pcm.kb_per_s / opus.kb_per_s >= LEAST_SAVING


def test_pcm_has_gaps_with_a_window_that_shrinks_and_none_with_bbr(found: list[Found]) -> None:
    assert all(one.underrun_s > 10 * MOST_UNDERRUN_S for one in _of(found, "pcm16", "cubic"))
    assert all(one.underrun_s <= MOST_UNDERRUN_S for one in _of(found, "pcm16", "bbr"))
