"""What is shown of a listener is what he had, and who is paged: a real server, a real path, every kind of client."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import pytest
import trustme

from omniwatch.desk.link.real import SERVER
from suites.path.listening import Listening
from suites.path.paging import Devices
from suites.path.run import PAST_MS, Judged, by_sent, judge, run
from suites.path.speaking import Speaking

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/net/tun").exists(),
        reason="namespaces need root, and /dev/net/tun",
    ),
    pytest.mark.timeout(900),
]


class Row(NamedTuple):
    """A scenario, a kind of client, a congestion control, turns; `ppm` is the camera's skew, `leaves_s` when the client does."""

    scenario: str
    kind: str
    congestion: str
    turns: int
    turn_s: float = 10.0
    pace: float = 1.05
    ppm: float = 0.0
    leaves_s: float = 0.0

    @property
    def name(self) -> str:
        scenario = self.scenario.replace(".", "")
        return f"{scenario}-{self.kind}-{self.congestion}-{self.turn_s:g}-{self.leaves_s:g}"


MADE = 1.5
"""Times real time that the recorded server made speech at."""
LONG_S = 40.0
PLAN = [
    Row("clean", "websocket", "cubic", 1, turn_s=120.0, ppm=1000),
    Row("clean", "websocket", "cubic", 6),
    Row("4g-10pct", "deflate", "bbr", 8, pace=MADE),
    Row("4g-10pct", "client", "cubic", 8, pace=MADE),
    Row("4g-10pct", "tls", "bbr", 8, pace=MADE),
    Row("bursts", "sse", "bbr", 8, pace=MADE),
    Row("outage-1.5s", "websocket", "cubic", 10),
    Row("outage-3s", "client", "cubic", 8),
    Row("uplink-queue", "websocket", "cubic", 8),
    Row("down-500k", "sse", "bbr", 6),
    Row("handover", "websocket", "cubic", 10),
    Row("new-address", "client", "cubic", 6),
    Row("acks-lost", "deflate", "cubic", 8),
    Row("acks-lost", "sse", "bbr", 6),
    Row("outage-3s", "websocket", "cubic", 2, turn_s=LONG_S),
    Row("uplink-queue", "websocket", "cubic", 2, turn_s=LONG_S),
    Row("down-500k", "sse", "bbr", 1, turn_s=LONG_S),
    Row("far", "websocket", "cubic", 2, turn_s=LONG_S, pace=1.0),
    Row("clean", "websocket", "cubic", 1, turn_s=LONG_S, leaves_s=15.0),
]
AT_ONCE = 6
SEED = int(os.environ.get("PATH_SEED", "1"))
CHUNK_MS = 320.0
FIRES_S, SURELY_S = 15.0, 21.0
"""CodecDrift's `for`, and how long it takes at most with an evaluation and a scrape."""


class Found(NamedTuple):
    """What came of a row, by the ear and by what was sent alone; whether somebody was paged."""

    row: Row
    by_ear: list[Judged]
    by_sent: list[Judged]
    device: str


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Found], set[str]]:
    place = tmp_path_factory.mktemp("path")
    authority = trustme.CA()
    ca_file, certificate = place / "ca.pem", place / "server.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    authority.issue_cert(SERVER).private_key_and_cert_chain_pem.write_to_path(str(certificate))

    def of(row: Row) -> Found:
        speaking = Speaking(
            host="",
            events="",
            resumable=row.kind == "client",
            congestion=row.congestion,
            chunk_ms=CHUNK_MS,
            turn_s=row.turn_s,
            pace=row.pace,
            certificate=str(certificate) if row.kind == "tls" else "",
        )
        listening = Listening(
            host="",
            kind=row.kind,
            turns=row.turns,
            camera_ppm=row.ppm,
            turn_timeout_s=row.leaves_s + 30 if row.leaves_s else row.turn_s + 40,
            # What a client that left cannot send any more must fit its buffer, or it never ends.
            frames_per_s=0.5 if row.leaves_s else 2.0,
            authority=str(ca_file),
        )
        one = run(
            row.scenario,
            SEED,
            speaking,
            listening,
            devices=devices,
            name=row.name,
            leaves_s=row.leaves_s,
        )
        return Found(row, judge(one), judge(one._replace(written=by_sent(one.written))), one.device)

    with Devices(place / "devices") as devices, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(of, PLAN))
        paged = devices.paged("CodecDrift")
    for one in found:
        for heard, sent in zip(one.by_ear, one.by_sent, strict=True):
            sys.stdout.write(
                f"{heard.scenario:14}{heard.kind:10} underrun {heard.underrun_shown_s:6.2f} of {heard.underrun_true_s:6.2f}"
                f" (sent {sent.underrun_shown_s:5.2f})"
                f"  first {heard.first_shown_s:5.2f} of {heard.first_true_s:5.2f} (sent {sent.first_shown_s:5.2f},"
                f" question {heard.question_s:5.2f})"
                f"  drift off by {_off(heard):6.0f} ms (sent {_off(sent):6.0f}), past 60 ms for {heard.past_s:5.1f} s"
                f"{', paged' if one.device in paged else ''}\n"
            )
    for name, judged in (
        ("kernel", [turn for one in found for turn in one.by_ear]),
        ("sent", [turn for one in found for turn in one.by_sent]),
    ):
        looks = [abs(look.shown_ms - look.true_ms) for turn in judged for look in turn.looks]
        sys.stdout.write(
            f"ear {name}: {len(judged)} turns, underrun near in {_share(_near(judged)):.1%}, drift off by {median(looks):.0f} ms,"
            f" same side in {_share(_same_side(judged)):.1%}\n"
        )
    return found, paged


@pytest.fixture(scope="module")
def turns(every: tuple[list[Found], set[str]]) -> list[Judged]:
    return [turn for one in every[0] for turn in one.by_ear]


def _near(turns: list[Judged]) -> list[bool]:
    return [
        abs(one.underrun_shown_s - one.underrun_true_s) <= max(0.15, 0.1 * one.underrun_true_s)
        for one in turns
    ]


def _same_side(turns: list[Judged]) -> list[bool]:
    return [
        (abs(look.shown_ms) > PAST_MS) == (abs(look.true_ms) > PAST_MS) for one in turns for look in one.looks
    ]


def _off(one: Judged) -> float:
    return median(abs(look.shown_ms - look.true_ms) for look in one.looks) if one.looks else 0.0


def _share(holds: list[bool]) -> float:
    return sum(holds) / len(holds)


def test_there_are_as_many_turns_as_asked(turns: list[Judged]) -> None:
    assert len(turns) >= 100


def test_the_underrun_shown_is_the_listeners(turns: list[Judged]) -> None:
    assert _share(_near(turns)) >= 0.95


def test_the_drift_shown_is_the_listeners(turns: list[Judged]) -> None:
    looks = [look for one in turns for look in one.looks]
    off = [abs(look.shown_ms - look.true_ms) for look in looks]
    assert median(off) <= 25
    bound = [max(CHUNK_MS + 50, 0.1 * abs(look.true_ms)) for look in looks]
    assert _share([one <= most for one, most in zip(off, bound, strict=True)]) >= 0.95
    assert _share(_same_side(turns)) >= 0.98


def test_a_page_comes_exactly_where_the_listener_is_out_of_sync(
    every: tuple[list[Found], set[str]],
) -> None:
    found, paged = every
    wrong = []
    for one in found:
        past_s = 0.0 if one.row.leaves_s else max((turn.past_s for turn in one.by_ear), default=0.0)
        is_paged = one.device in paged
        if (is_paged and past_s < FIRES_S) or (not is_paged and past_s >= SURELY_S):
            wrong.append((one.row, past_s, is_paged))
    assert not wrong
    assert paged


def test_a_server_that_speaks_in_real_time_far_away_is_never_past_the_limit(
    every: tuple[list[Found], set[str]],
) -> None:
    (far,) = (one for one in every[0] if one.row.scenario == "far")
    assert max(abs(look.shown_ms) for turn in far.by_ear for look in turn.looks) <= PAST_MS


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
