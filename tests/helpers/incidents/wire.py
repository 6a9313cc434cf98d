"""Carry speech to a listener: a connection with a congestion window, a receive buffer and a reader, and a kernel that is asked.

A connection is reckoned round by round. A round's loss is filled a round trip later where enough follows to show it, else after a
timeout that doubles; all behind a hole comes at once when it is filled. Nothing passes while the path is down.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import ceil, inf

SEGMENT = 1448
RTO_S = 0.2
DELAYED_S = 0.04
TRANSPORT = 64 * 1024
"""What a server's own transport takes before it lets the server wait."""
LOW_WATER = 16 * 1024
LEAST_BUFFER = 87_040


@dataclass
class Path:
    """A network, by its seed. Spells of trouble are (from, until, how much)."""

    rtt_s: float
    jitter_s: float = 0.0
    loss: float = 0.0
    rate: float = inf
    """Bytes a second downwards."""
    downs: list[tuple[float, float]] = field(default_factory=list)
    lossy: tuple[float, float, float] | None = None
    slow: tuple[float, float, float] | None = None
    longer: tuple[float, float, float] | None = None
    """Seconds that a packet waits on its way down in a queue that others fill."""
    luck: random.Random = field(default_factory=random.Random)

    def is_down(self, t: float) -> bool:
        """Whether nothing passes at t."""
        return any(a <= t < b for a, b in self.downs)

    def lost(self, t: float) -> bool:
        """Whether a segment sent at t is lost."""
        share = self.lossy[2] if self.lossy and self.lossy[0] <= t < self.lossy[1] else self.loss
        draw = self.luck.random()
        return self.is_down(t) or draw < share

    def rate_at(self, t: float) -> float:
        """Bytes a second at t."""
        return self.slow[2] if self.slow and self.slow[0] <= t < self.slow[1] else self.rate

    def round_trip_s(self, t: float) -> float:
        """A round trip begun at t."""
        more = self.longer[2] if self.longer and self.longer[0] <= t < self.longer[1] else 0.0
        return self.rtt_s + more + self.luck.random() * self.jitter_s


@dataclass
class Reader:
    """The client's application: takes bytes from its socket's buffer."""

    buffer: int = 4 * 2**20
    slow: tuple[float, float, float] | None = None
    """From when until when it reads only so many bytes a second."""

    def rate(self, t: float) -> float:
        """Bytes a second that it reads at t."""
        return self.slow[2] if self.slow and self.slow[0] <= t < self.slow[1] else inf


class Connection:
    """One TCP connection downwards. Counts bytes from its first."""

    def __init__(self, path: Path, reader: Reader, t: float) -> None:
        self.path, self.reader = path, reader
        self.now = t
        self.cwnd, self.ssthresh = 10.0, 1e9
        self.queued = self.acked = self.read = 0.0
        self.acks: list[tuple[float, float]] = []
        """When the server's kernel had how many bytes acknowledged."""
        self.taken: list[tuple[float, float]] = []
        """When the client's application had how many."""
        self.resent: list[tuple[float, int]] = []
        self.closed: list[tuple[float, float]] = []
        """When the receive window held the server up."""
        self._read_t = t
        self._seen = 0

    def push(self, t: float, size: int) -> None:
        """Hand over bytes at t."""
        self.run(t)
        self.now = max(self.now, t)
        self.queued += size

    def room_t(self, t: float) -> float:
        """Return when the server's transport takes more, at t at the earliest."""
        while self.queued - self.acked > TRANSPORT + self._buffer() and self.now < t + 60:
            self._round()
        return max(t, self.now) if self.queued - self.acked > LOW_WATER and self.now > t else t

    def _buffer(self) -> float:
        return max(LEAST_BUFFER, 2 * self.cwnd * SEGMENT)

    def run(self, t: float) -> None:
        """Let it send until t."""
        while self.acked < self.queued and self.now < t:
            self._round()

    def drain(self, until: float) -> None:
        """Let it send all, until `until` at most."""
        self.run(until)
        self._read_until(inf)

    def _round(self) -> None:
        path, t = self.path, self.now
        self._read_until(t)
        window = self.reader.buffer - (self.acked - self.read)
        left = self.queued - self.acked
        if window < min(left, 2 * SEGMENT):
            rate = self.reader.rate(t)
            wait = max(0.01, min(0.2, (2 * SEGMENT - window) / rate if rate else 0.2))
            self.closed.append((t, t + wait))
            self.now += wait
            return
        size = min(left, self.cwnd * SEGMENT, window)
        if window < min(left, self.cwnd * SEGMENT):
            self.closed.append((t, t + path.rtt_s))
        count = ceil(size / SEGMENT)
        rtt = path.round_trip_s(t)
        lost = [n for n in range(count) if path.lost(t)]
        took = max(rtt, size / path.rate_at(t))
        if not lost:
            if self.cwnd < self.ssthresh:
                self.cwnd += count
            else:
                self.cwnd += count / self.cwnd
            self._ack(t + took, size, count)
            return
        first = lost[0] * SEGMENT
        if first:
            self._ack(t + took, min(first, size), lost[0])
        self.resent.append((t + took, len(lost)))
        self.ssthresh = max(2.0, self.cwnd / 2)
        if count - lost[0] > 3 and len(lost) < count - 2:
            self.cwnd = self.ssthresh
            t = t + took
            if not any(path.lost(t) for _ in lost):
                self._ack(t + path.round_trip_s(t), size - first, count)
                return
        pause = RTO_S + path.rtt_s
        t = max(self.now, t)
        while True:
            t += pause
            pause = min(2 * pause, 60.0)
            self.resent.append((t, 1))
            if not path.lost(t):
                break
        self.cwnd = 2.0
        self._ack(t + path.round_trip_s(t), size - first, count)

    def _ack(self, t: float, size: float, count: int) -> None:
        if size > 0:
            self.acked = min(self.queued, self.acked + size)
            late = self.path.luck.random() * DELAYED_S if count % 2 and self.acked == self.queued else 0.0
            self.acks.append((t + late, self.acked))
        self.now = max(self.now, t)

    def _read_until(self, t: float) -> None:
        """Let the application read what had come by t."""
        while self._seen < len(self.acks):
            at, upto = self.acks[self._seen]
            at = max(at - self.path.rtt_s / 2, self._read_t)
            while self.read < upto:
                rate = self.reader.rate(at)
                step = upto - self.read if rate == inf else min(upto - self.read, rate * 0.05)
                done = at if rate == inf else at + step / rate
                if done > t:
                    return
                at = done
                self.read += step
                self.taken.append((at, self.read))
                self._read_t = at
            self._seen += 1


def reached(counts: list[tuple[float, float]], size: float) -> float:
    """Return when a count had come to `size`; infinity for never."""
    return next((t for t, upto in counts if upto >= size - 0.5), inf)
