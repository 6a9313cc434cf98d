"""What an application hears, and what it is told afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class Ears:
    """What an application hears of its turns: override what is of use. Times are the event loop's."""

    def format(self, sound: dict[str, Any]) -> None:
        """Speech from here on is 16-bit PCM of `sample_rate_hz` and `channels`."""

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        """Play 80 ms of speech, from `play_at` on."""

    def text(self, text: str) -> None:
        """Show text."""

    def event(self, payload: memoryview) -> None:
        """Take an event of the model server (JSON)."""

    def lost(self, from_id: int, count: int) -> None:
        """Frames will not come: conceal 80 ms for each."""

    def realign(self, shift_ms: float) -> None:
        """Drop so much of what waits to be played (negative), or hold still for so long."""

    def resumed(self, resumption: Resumption) -> None:
        """Something new is heard after an outage."""


@dataclass(frozen=True)
class Resumption:
    """One return: `result` is the server's "hit" or "replay", "" when the old connection came back to life.

    Nothing was heard for `outage_s`; the first new frame came `answer_s` after the client set out, `late_s` after the
    player had nothing left.
    """

    result: str
    outage_s: float
    answer_s: float
    late_s: float


@dataclass
class Summary:
    """How one turn went. `reason` is "done", or why it ended before."""

    reason: str = ""
    spoken: int = 0
    duplicates: int = 0
    corrupt: int = 0
    lost: int = 0
    rtx: int = 0
    realigned: int = 0
    resumptions: list[Resumption] = field(default_factory=list)
