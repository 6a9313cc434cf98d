"""Define the callbacks that an application overrides, and the summary it gets of a turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class TurnCallbacks:
    """Receive a turn: override what is of use. Times are those of the event loop's clock."""

    def format(self, sound: dict[str, Any]) -> None:
        """Prepare for speech as 16-bit PCM of `sample_rate_hz` and `channels`, from here on."""

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        """Play 80 ms of speech at `play_at`."""

    def text(self, text: str) -> None:
        """Show text."""

    def event(self, payload: memoryview) -> None:
        """Handle an event of the model server (JSON)."""

    def lost(self, from_id: int, count: int) -> None:
        """Conceal 80 ms for each of `count` frames that will not come. Those in Opus come to `audio`, concealed, for 2 s."""

    def realign(self, shift_ms: float) -> None:
        """Drop |shift_ms| of the audio that waits to be played (negative), or pause for that long (positive)."""

    def resumed(self, resumption: Resumption) -> None:
        """Note that new data arrived after an outage."""


@dataclass(frozen=True)
class Resumption:
    """Describe one return after an outage.

    `result` is the server's "hit" or "replay", "" when the old connection recovered. No data came for `outage_s`. The
    first new frame came `answer_s` after the first attempt, and `late_s` after the player had run dry.
    """

    result: str
    outage_s: float
    answer_s: float
    late_s: float


@dataclass
class Summary:
    """Count what one turn brought. `reason` is "done", or why the turn ended before.

    `error` is the last connection's error where no connection came about: an expired certificate, say.
    """

    reason: str = ""
    spoken: int = 0
    duplicates: int = 0
    corrupt: int = 0
    lost: int = 0
    rtx: int = 0
    realigned: int = 0
    resumptions: list[Resumption] = field(default_factory=list)
    error: str = ""
