"""What the made-up network does to packets: as often, as long and in the order that its scenario says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from omniwatch.desk.link import scenario as scenarios
from omniwatch.desk.link.path import Gilbert, Link, OutageSchedule
from omniwatch.desk.link.scenario import Cuts, Handover, Loss, Outage, Scenario, ScenarioError


@pytest.mark.parametrize(
    ("loss", "share", "burst"),
    [
        (Loss(share=0.1), 0.1, 1 / 0.9),
        (Loss(share=0.1, burst=3), 0.1, 3.0),
        (Loss(share=0.3, burst=5), 0.3, 5.0),
        (Loss(share=0.0), 0.0, 0.0),
    ],
)
def test_share_and_bursts_are_those_of_the_scenario(loss: Loss, share: float, burst: float) -> None:
    channel = Gilbert(loss, random.Random(3))
    lost = [channel.lost() for _ in range(200_000)]
    assert sum(lost) / len(lost) == pytest.approx(share, rel=0.05)
    bursts = sum(now and not before for before, now in zip([False, *lost], lost, strict=False))
    assert sum(lost) / max(1, bursts) == pytest.approx(burst, rel=0.05)


def test_a_bad_channel_may_lose_only_a_part() -> None:
    channel = Gilbert(Loss(share=0.1, burst=10, bad=0.5), random.Random(3))
    lost = [channel.lost() for _ in range(400_000)]
    assert sum(lost) / len(lost) == pytest.approx(0.1, rel=0.05)


class Fate(Gilbert):
    """Loses the packets whose numbers are given, counted from 0."""

    def __init__(self, lost: set[int]) -> None:
        self._numbers = lost
        self._count = iter(range(10**9))

    def lost(self) -> bool:
        return next(self._count) in self._numbers


def still(**fields: Any) -> Scenario:
    return Scenario(about="a test", **fields)


def test_a_packet_takes_half_a_round_trip_and_a_handshake_a_whole_one() -> None:
    link = Link(still(rtt_ms=100), 1)
    assert link.ways["down"].carry(1.0, 1500) == pytest.approx(1.05)
    assert link.handshake(2.0) == pytest.approx(2.1)


def test_a_rate_spreads_packets_and_a_full_queue_drops_them() -> None:
    way = Link(still(rtt_ms=100, down_kbit=1500 * 8 / 100, queue_ms=250), 1).ways["down"]
    arrivals = [way.carry(0.0, 1500) for _ in range(4)]
    assert arrivals[:3] == [pytest.approx(0.15), pytest.approx(0.25), pytest.approx(0.35)]
    assert (arrivals[3], way.fate) == (None, "overflowed")


def test_a_lost_handshake_is_tried_again_after_one_two_four_seconds_and_holds_up_no_other_packet() -> None:
    link = Link(still(rtt_ms=100), 1)
    link.ways["up"].channel = Fate({0, 1})
    assert link.handshake(0.0) == pytest.approx(3.1)
    assert link.ways["up"].carry(0.0, 40) == pytest.approx(0.05)


def test_nothing_passes_in_an_outage_and_tcp_comes_back_later_than_it_ends() -> None:
    link = Link(still(rtt_ms=100, outage=Outage(every_s=30, for_s=3)), 4)
    outage = link.weather.happening(0)
    assert outage is not None
    assert 6 <= outage.at <= 30
    assert outage.for_s == 3
    assert not link.weather.down(outage.at - 0.01)
    assert link.weather.down(outage.at)
    assert link.weather.down(outage.at + 2.99)
    assert not link.weather.down(outage.at + 3)
    assert link.ways["down"].carry(outage.at + 0.5, 100) is None
    assert link.ways["down"].carry(outage.at + 3, 100) is not None
    down = link.flow("down")
    down.write(outage.at + 0.5, 100)
    down.advance(outage.at + 30)
    ((when, _),) = down.arrived
    # Sent again after 0.3, 0.9, 2.1 and 4.5 s, give or take the kernel's ticks: the outage has 2.5 s to go.
    assert when == pytest.approx(outage.at + 0.5 + 4.5 + 0.05, abs=0.6)


def test_outages_handovers_and_cuts_come_as_often_as_the_scenario_says() -> None:
    handover = Handover(per_minute=3, median_ms=60, p95_ms=250, failure=0.05, cut=0.5)
    weather = OutageSchedule(
        still(handover=handover, cuts=Cuts(every_s=5, silent=0.25), outage=Outage(every_s=30, for_s=3)),
        random.Random(5),
    )
    found = [weather.happening(i) for i in range(20_000)]
    happenings = [h for h in found if h and h.at < 36_000]
    assert [h.at for h in happenings] == sorted(h.at for h in happenings)
    by = {
        why: [h for h in happenings if h.why == why]
        for why in ("outage", "handover", "handover failed", "cut")
    }
    assert len(by["outage"]) == pytest.approx(1200, rel=0.01)
    handovers = by["handover"] + by["handover failed"]
    assert len(handovers) == pytest.approx(1800, rel=0.05)
    assert len(by["handover failed"]) == pytest.approx(90, rel=0.3)
    assert all(1 <= h.for_s <= 3 for h in by["handover failed"])
    lengths = sorted(h.for_s for h in by["handover"])
    assert lengths[len(lengths) // 2] == pytest.approx(0.06, rel=0.1)
    assert lengths[len(lengths) * 95 // 100] == pytest.approx(0.25, rel=0.2)
    assert sum(h.cut == "silent" for h in handovers) == pytest.approx(900, rel=0.1)
    assert len(by["cut"]) == pytest.approx(7200, rel=0.05)
    assert sum(h.cut == "silent" for h in by["cut"]) == pytest.approx(1800, rel=0.1)
    assert {h.cut for h in by["cut"]} == {"silent", "reset"}


def test_the_same_seed_is_the_same_network_and_another_is_another() -> None:
    def sample(seed: int) -> list[object]:
        link = Link(scenarios.load("4g-bursty"), seed)
        flows = link.flow("down"), link.flow("up")
        for number in range(100):
            for flow in flows:
                flow.advance(number / 10)
                flow.write(number / 10, 3000)
        return [
            *(list(flow.arrived) for flow in flows),
            *(link.weather.happening(i) for i in range(20)),
            link.handshake(50.0),
        ]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_the_scenarios_are_what_their_names_promise() -> None:
    assert {"4g-10pct", "4g-bursty", "highway-120", "tunnel"} <= set(scenarios.names())
    assert (scenarios.load("4g-10pct").rtt_ms, scenarios.load("4g-10pct").loss) == (100, Loss(share=0.1))
    assert scenarios.load("4g-bursty").loss == Loss(share=0.1, burst=3)
    handover = scenarios.load("highway-120").handover
    assert handover is not None
    assert handover.per_minute == 3
    assert scenarios.load("tunnel").outage == Outage(every_s=30, for_s=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("about: x\nrtt: 5\n", "rtt"),
        ("about: x\nloss: {share: 2}\n", "share"),
        ("about: [\n", "expected"),
        ("rtt_ms: 5\n", "about"),
        ("", "object"),
    ],
)
def test_a_scenario_that_does_not_hold_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=says) as error:
        scenarios.load(str(path))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine.yaml: ")


def test_a_scenario_there_is_not_is_told_with_those_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"nope: no such scenario; there are 4g-10pct, .*tunnel"):
        scenarios.load("nope")
