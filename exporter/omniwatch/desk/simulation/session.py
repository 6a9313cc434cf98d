"""The state that the processes of one simulated client share."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from functools import reduce
from operator import xor
from typing import NamedTuple

from omniwatch.desk.simulation.scenarios import Scenario, SimulatedListener
from omniwatch.events import Audio, Event, Realign

PICTURE_MS = 1000 / 30
ALIGN_S = 0.15
"""Speech is made for the picture of so long ago: by then even a late one has arrived."""
PICTURES_KEPT = 256
CODEBOOKS, CODE_BITS, EXPERTS = 4, 11, 4

Process = Iterator[Event | float]


class Frame(NamedTuple):
    """A codec frame that was made and not yet handed over."""

    due_s: float
    pts_ms: float
    frame_id: int
    turn: int


class Session:
    """A stream's state. A process calls in here, and nobody else does."""

    def __init__(self, scenario: Scenario, listener: SimulatedListener, stream: str, seed: int) -> None:
        self.scenario, self.listener, self.stream = scenario, listener, stream
        self._seed = seed
        self._moved_ms = -scenario.crept_ms(listener.joins_s)
        self._codec = self.luck("codec")
        self.up_s: float | None = None
        """When the link comes back; None while it is there."""
        self.speech_waits = False
        """Speech is held back: the link is away, or came back only now."""
        self.held: deque[Frame] = deque()
        self.user_waits = False
        """A question was asked and its answer has not begun."""
        self.next_id = 0
        self._pts_ms = [0.0] * PICTURES_KEPT
        self._last_picture = 0

    def luck(self, purpose: str) -> random.Random:
        """Randomness of its own for each purpose: a change in one process leaves the others' alone."""
        return random.Random(f"{self.stream}/{self._seed}/{purpose}")

    def drift_ms(self, at_s: float) -> float:
        """How far the voice leads the picture."""
        return self._moved_ms + self.scenario.crept_ms(at_s)

    def jump(self, by_ms: float) -> None:
        """Displace the voice."""
        self._moved_ms += by_ms

    def realign(self, now_s: float) -> Process:
        """Force the voice back onto the picture."""
        drift_ms = self.drift_ms(now_s)
        if abs(drift_ms) >= 1:
            self._moved_ms -= drift_ms
            yield Realign(t=now_s, stream=self.stream, shift_ms=round(drift_ms, 3))

    def receive_picture(self, number: int, pts_ms: float) -> None:
        """Keep when a picture was taken."""
        self._pts_ms[number % PICTURES_KEPT] = pts_ms
        self._last_picture = number

    def make(self, due_s: float, turn: int) -> Frame:
        """Make the codec frame of a moment."""
        pts_ms = round((due_s - self.listener.joins_s - ALIGN_S) * 1000 + self.drift_ms(due_s), 3)
        frame = Frame(due_s, pts_ms, self.next_id, turn)
        self.next_id = (self.next_id + 1) % 2**32
        return frame

    def hand_over(self, frame: Frame, now_s: float) -> Audio:
        """Hand a frame to the network, stamped with the nearest picture that has arrived."""
        luck = self._codec
        codes = [luck.getrandbits(CODE_BITS) for _ in range(CODEBOOKS)]
        damaged = luck.random() < self.scenario.condition(now_s).corrupt_share
        in_checksum = damaged and luck.random() < 0.5
        if damaged and not in_checksum:
            codes[luck.randrange(CODEBOOKS)] |= 1 << CODE_BITS
        nearest = round((frame.due_s - self.listener.joins_s - ALIGN_S) * 1000 / PICTURE_MS)
        first, second = luck.sample(range(EXPERTS), 2)
        self.user_waits = False
        return Audio(
            t=now_s,
            stream=self.stream,
            turn=frame.turn,
            pts_ms=frame.pts_ms,
            video_pts_ms=self._pts_ms[min(nearest, self._last_picture) % PICTURES_KEPT],
            frame_id=frame.frame_id,
            checksum=reduce(xor, codes) ^ in_checksum,
            codes=codes,
            expert_mask=1 << first | 1 << second,
        )
