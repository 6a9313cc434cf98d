"""Carry IP packets between two TUN devices as a scenario's network would: the process behind a real path.

    python -m omniwatch.desk.link.carrier SCENARIO SEED

It prints the names of its two devices, the server's first, and waits for a line. Then the scenario runs. Each handover is
a line (JSON). When standard input ends, the last line counts packets and how late this process was with them.
"""

from __future__ import annotations

import collections
import json
import os
import random
import select
import struct
import sys
import time
from typing import NamedTuple

import msgspec

from omniwatch.desk.link import scenario as scenarios
from omniwatch.desk.link.path import Blackout, OutageSchedule, Way
from omniwatch.desk.link.scenario import Scenario
from omniwatch.desk.link.tun import go_before_others, open_device

LATE_S = 0.02
"""A packet carried so much after its time is counted as late: the machine was busy, not the network."""
TCP = 6
RST_ACK = 0x14

Endpoint = tuple[bytes, bytes]
"""The client's address and port, as they stand in its packets."""
Queue = collections.deque[tuple[float, bytes]]
"""Packets under way, and when they arrive."""


class Counts(msgspec.Struct):
    """What one run carried: packets by fate, and the worst delay that this process added."""

    carried: int = 0
    lost: int = 0
    """Lost by the scenario: on the air, in outages, on dead connections."""
    overflowed: int = 0
    """Lost because the rate's queue was full."""
    late: int = 0
    worst_ms: float = 0.0


class Segment(NamedTuple):
    """The fields of an IPv4 TCP packet that a carrier looks at."""

    source: Endpoint
    target: Endpoint
    seq: int
    ack: int
    length: int
    """Sequence numbers it takes: payload, SYN and FIN."""


def segment(packet: bytes) -> Segment | None:
    """Read a TCP segment of IPv4; None for everything else."""
    if packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    at = (packet[0] & 15) * 4
    seq, ack = struct.unpack_from("!II", packet, at + 4)
    flags = packet[at + 13]
    data = len(packet) - at - (packet[at + 12] >> 4) * 4
    return Segment(
        (packet[12:16], packet[at : at + 2]),
        (packet[16:20], packet[at + 2 : at + 4]),
        seq,
        ack,
        data + bool(flags & 0x02) + bool(flags & 0x01),
    )


def reset_for(one: Segment) -> bytes:
    """Return the RST that refuses a segment, from the end that it was sent to."""
    (to_ip, to_port), (from_ip, from_port) = one.source, one.target
    acked = (one.seq + one.length) & 0xFFFFFFFF
    tcp = struct.pack("!2s2sIIBBHHH", from_port, to_port, one.ack, acked, 5 << 4, RST_ACK, 0, 0, 0)
    checked = checksum(from_ip + to_ip + struct.pack("!HH", TCP, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack("!H", checked) + tcp[18:]
    head = struct.pack("!BBHIBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 64, TCP, 0, from_ip, to_ip)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + tcp


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


class Carrier:
    """The network between two devices, without the devices: packets in, packets out. Pure."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rng = random.Random(seed)
        self.outages = OutageSchedule(scenario, random.Random(rng.random()))
        self.ways = {
            name: Way(name, scenario, self.outages, random.Random(rng.random())) for name in ("up", "down")
        }
        self.queues: dict[str, Queue] = {name: collections.deque() for name in self.ways}
        self.counts = Counts()
        self._number = 0
        self._flows: set[Endpoint] = set()
        self._dead: dict[Endpoint, str] = {}

    def pass_time(self, now: float) -> list[Blackout]:
        """Begin the blackouts that are due, and return them."""
        found = []
        while (coming := self.outages.happening(self._number)) is not None and coming.at <= now:
            self._number += 1
            found.append(coming)
            if coming.cut:
                self._dead |= dict.fromkeys(self._flows, coming.cut)
                self._flows.clear()
        return found

    def take(self, now: float, way: str, packet: bytes) -> bytes | None:
        """Take a packet that goes `way`; return an answer for its sender, if the network gives one."""
        one = segment(packet)
        if one is not None:
            client = one.source if way == "up" else one.target
            if cut := self._dead.get(client):
                self.counts.lost += 1
                return reset_for(one) if cut == "reset" else None
            self._flows.add(client)
        arrives = self.ways[way].carry(now, len(packet))
        if arrives is not None:
            self.queues[way].append((arrives, packet))
        fate = self.ways[way].fate
        setattr(self.counts, fate, getattr(self.counts, fate) + 1)
        return None

    def due(self) -> float | None:
        """Return when the next packet arrives."""
        return min((queue[0][0] for queue in self.queues.values() if queue), default=None)

    def arrived(self, now: float, way: str) -> list[bytes]:
        """Return the packets that have arrived by now."""
        queue, found = self.queues[way], []
        while queue and queue[0][0] <= now:
            at, packet = queue.popleft()
            late_s = now - at
            self.counts.late += late_s > LATE_S
            self.counts.worst_ms = max(self.counts.worst_ms, late_s * 1000)
            found.append(packet)
        return found


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        # The address at the other side has just changed, or its device is full: a network loses the packet, too.
        return


def main(scenario: str, seed: int) -> None:
    """Carry until standard input ends."""
    go_before_others()
    carrier = Carrier(scenarios.load(scenario), seed)
    (server, server_name), (client, client_name) = open_device("owserver%d"), open_device("owclient%d")
    reads = {server: ("down", client), client: ("up", server)}
    back = {"up": client, "down": server}
    sys.stdout.write(f"{server_name} {client_name}\n")
    sys.stdout.flush()
    sys.stdin.readline()
    began = time.monotonic()
    while True:
        due = carrier.due()
        pause = 0.1 if due is None else max(0.0, min(0.1, began + due - time.monotonic()))
        ready, _, _ = select.select([*reads, sys.stdin], [], [], pause)
        now = time.monotonic() - began
        for what in carrier.pass_time(now):
            sys.stdout.write(json.dumps(what._asdict()) + "\n")
            sys.stdout.flush()
        if sys.stdin in ready and not sys.stdin.readline():
            break
        for device in ready:
            if device not in reads:
                continue
            way, _ = reads[device]
            while True:
                try:
                    packet = os.read(device, 65536)
                except BlockingIOError:
                    break
                if (answer := carrier.take(now, way, packet)) is not None:
                    _write(back[way], answer)
        now = time.monotonic() - began
        for way, target in reads.values():
            for packet in carrier.arrived(now, way):
                _write(target, packet)
    sys.stdout.write(json.dumps(msgspec.to_builtins(carrier.counts)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
