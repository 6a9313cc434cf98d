"""What a carrier does to packets, without devices: when they arrive, which are lost, which connections are dead."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from omniwatch.desk.link import carrier
from omniwatch.desk.link.carrier import Carrier, reset_for, segment
from omniwatch.desk.link.scenario import Cuts, Loss, Outage, Scenario, Standing

SYN, ACK = 0x02, 0x10


def packet(
    port: int, *, up: bool = True, data: int = 0, flags: int = ACK, seq: int = 7, ack: int = 9
) -> bytes:
    """A TCP packet between the client's `port` and the server's port 80, as far as a carrier reads it."""
    client, server = (bytes([198, 18, 1, 1]), port), (bytes([198, 18, 0, 1]), 80)
    (source, sport), (target, dport) = (client, server) if up else (server, client)
    tcp = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 100, 0, 0)
    return struct.pack("!BBHIBBH4s4s", 0x45, 0, 40 + data, 0, 64, 6, 0, source, target) + tcp + bytes(data)


def path(**fields: Any) -> Carrier:
    return Carrier(Scenario(about="a test", **fields), 1)


def all_arrivals(one: Carrier, way: str) -> list[float]:
    """Return when each queued packet is due, in milliseconds."""
    return [round(at * 1000, 3) for at, _ in one.queues[way]]


def test_a_packet_takes_half_the_round_trip_and_keeps_its_order() -> None:
    one = path(rtt_ms=100, jitter_ms=30)
    for number in range(200):
        one.take(number / 1000, "down", packet(1, up=False))
    due = all_arrivals(one, "down")
    assert due == sorted(due)
    assert all(50 <= at - number <= 50 + 30 + 30 for number, at in enumerate(due))
    assert one.due() == pytest.approx(due[0] / 1000, abs=1e-6)
    assert len(one.arrived(0.3, "down")) == 200
    assert one.due() is None


def test_a_rate_queues_and_a_full_queue_drops() -> None:
    one = path(down_kbit=800, queue_ms=100)
    for _ in range(200):
        one.take(0.0, "down", packet(1, up=False, data=960))
    due = all_arrivals(one, "down")
    assert due[:3] == [10.0, 20.0, 30.0]
    assert len(due) == 11
    assert one.counts.overflowed == 189


def test_loss_is_that_of_its_direction() -> None:
    one = path(loss=Loss(share=0.0), loss_up=Loss(share=0.2))
    for number in range(5000):
        one.take(number / 100, "up", packet(1))
        one.take(number / 100, "down", packet(1, up=False))
    assert len(one.queues["down"]) == 5000
    assert one.counts.lost == pytest.approx(1000, rel=0.1)


def test_nothing_passes_in_an_outage() -> None:
    one = path(outage=Outage(every_s=10, for_s=3))
    passed = []
    for tick in range(1400):
        one.pass_time(tick / 100)
        before = one.counts.carried
        one.take(tick / 100, "up", packet(1))
        passed.append(one.counts.carried > before)
    begin = passed.index(False)
    assert 200 <= begin <= 1000
    assert passed[begin:].index(True) == 300


def test_a_queue_that_others_fill_delays_what_goes_up() -> None:
    one = path(rtt_ms=100, standing_up=Standing(every_s=30, for_s=8, ms=300))
    for at in (0.0, 21.9, 22.1, 29.9, 30.1):
        one.take(at, "up", packet(1))
        one.take(at, "down", packet(1, up=False))
    assert all_arrivals(one, "up") == [50.0, 21950.0, 22450.0, 30250.0, 30250.0]
    assert all_arrivals(one, "down") == [50.0, 21950.0, 22150.0, 29950.0, 30150.0]


@pytest.mark.parametrize("silent", [1.0, 0.0])
def test_a_cut_kills_the_connections_there_were_and_no_others(silent: float) -> None:
    one = path(cuts=Cuts(every_s=5, silent=silent))
    one.take(0.0, "up", packet(1, flags=SYN))
    happened, now = [], 0.0
    while not happened:
        now += 0.1
        happened = one.pass_time(now)
    answers = [one.take(now, "up", packet(1)), one.take(now, "down", packet(1, up=False))]
    assert [answer is None for answer in answers] == [silent == 1.0] * 2
    assert one.take(now, "up", packet(2, flags=SYN)) is None
    assert len(one.queues["up"]) == 2
    assert not one.queues["down"]


def test_a_reset_is_a_packet_that_the_sender_takes() -> None:
    sent = segment(packet(5, data=10, seq=2**32 - 4, ack=77))
    assert sent is not None
    answer = reset_for(sent)
    assert answer[13 + 20] == carrier.RST_ACK
    read = segment(answer)
    assert read is not None
    assert (read.source, read.target) == (sent.target, sent.source)
    assert (read.seq, read.ack) == (77, 6)
    # A sum over data with its own checksum in it is 0.
    assert carrier.checksum(answer[:20]) == 0
    assert carrier.checksum(answer[12:20] + struct.pack("!HH", 6, 20) + answer[20:]) == 0


def test_what_is_no_tcp_passes_as_a_packet_alone() -> None:
    one = path()
    assert segment(b"\x60" + bytes(39)) is None
    assert one.take(0.0, "up", b"\x60" + bytes(39)) is None
    assert one.counts.carried == 1


def test_what_comes_late_is_counted() -> None:
    one = path(rtt_ms=100)
    one.take(0.0, "up", packet(1))
    one.take(0.1, "up", packet(1))
    one.arrived(0.16, "up")
    assert (one.counts.late, round(one.counts.worst_ms)) == (1, 110)
