"""A network link with delay, loss and outages, in user space: real packets, so the kernel's own TCP feels them.

A TUN device reflects: what is sent from `here` to `there` comes back, after the delay, as sent from `there` to `here`.
Both ends of a connection live on this machine: the server listens on `here` (or on every address), its client connects
to `there`, and each sees the other at `there`. Exchanging two addresses changes no IP, TCP or UDP checksum.

Packets are carried by a process of its own, ahead of all others, so that a busy machine adds no delay. It needs /dev/net/tun and
CAP_NET_ADMIN (root, or `unshare --map-root-user --net`); the device goes away with the process.
"""

from __future__ import annotations

import collections
import json
import os
import random
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

from omniwatch.desk.link.tun import go_before_others, open_device


class DelayLink:
    """The link, up while the context lasts; `set` changes it at any time.

    `delay_ms` is added to each packet, so a round trip takes twice as long. `loss` is the share of packets dropped at
    random, repeatable by `seed`. `down` is False, True (nothing passes) or a port: nothing sent from it passes.
    """

    def __init__(self, delay_ms: float = 50.0, loss: float = 0.0, seed: int = 1, ipv6: bool = False) -> None:
        net = random.SystemRandom().randrange(1, 2**15)
        if ipv6:
            prefix = f"fd6f:6d6e:{net:x}::"
            self.here, self.there, self._size = f"{prefix}1", f"{prefix}2", 64
        else:
            # RFC 2544 sets 198.18.0.0/15 aside for measurements.
            prefix = f"198.{18 + net // 2**14}.{net % 2**14 // 2**6}.{net % 2**6 * 4}"
            base = prefix.rpartition(".")[0]
            last = int(prefix.rpartition(".")[2])
            self.here, self.there, self._size = f"{base}.{last + 1}", f"{base}.{last + 2}", 30
        self._state: dict[str, Any] = {"delay_ms": delay_ms, "loss": loss, "down": False}
        self._seed = seed

    def __enter__(self) -> DelayLink:
        command = [sys.executable, __file__, f"{self.here}/{self._size}", str(self._seed)]
        self._carrier = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.set()
        return self

    def set(self, **state: float | bool) -> None:
        """Change `delay_ms`, `loss` or `down`; in force when this returns."""
        self._state |= state
        assert self._carrier.stdin is not None
        assert self._carrier.stdout is not None
        try:
            self._carrier.stdin.write(json.dumps(self._state) + "\n")
            self._carrier.stdin.flush()
        except BrokenPipeError:
            pass
        assert self._carrier.stdout.readline(), (
            "the link is not up (see standard error; it needs CAP_NET_ADMIN)"
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._carrier.communicate()


def reflected(packet: bytes) -> bytes:
    """Return the IP packet with its source and destination exchanged."""
    if packet[0] >> 4 == 4:
        return packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
    return packet[:8] + packet[24:40] + packet[8:24] + packet[40:]


def source_port(packet: bytes) -> int:
    """Return the port a TCP or UDP packet was sent from."""
    at = (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40
    return int.from_bytes(packet[at : at + 2], "big")


def _device(address: str) -> int:
    device, name = open_device("omnilink%d")
    unchecked = ["nodad"] if ":" in address else []
    subprocess.run(["ip", "address", "add", address, "dev", name, *unchecked], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return device


def _carry(device: int, seed: int) -> None:
    """Carry packets until standard input ends; each line of it is a new state, answered with a line."""
    chance = random.Random(seed)
    queue: collections.deque[tuple[float, bytes]] = collections.deque()
    state: dict[str, Any] = {}
    while True:
        wait = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        ready, _, _ = select.select([device, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            state = json.loads(line)
            sys.stdout.write("\n")
            sys.stdout.flush()
        if device in ready:
            packet = os.read(device, 65536)
            down = state["down"] is True or (state["down"] and state["down"] == source_port(packet))
            if not down and chance.random() >= state["loss"]:
                due = time.monotonic() + state["delay_ms"] / 1000.0
                queue.append((max(due, queue[-1][0]) if queue else due, reflected(packet)))
        while queue and queue[0][0] <= time.monotonic():
            os.write(device, queue.popleft()[1])


if __name__ == "__main__":
    go_before_others()
    _carry(_device(sys.argv[1]), int(sys.argv[2]))
