"""A synthetic client: asks, listens with a player of its own, and measures its wait and the gaps.

All times are the client's own clock (`time.monotonic`, seconds). A turn is asked for, heard and judged by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omniwatch.system.terminal import one_line

if TYPE_CHECKING:
    from omniwatch.desk.probe.transcript import Words

OUTCOMES = ("ok", "silent", "error", "malformed", "cut", "timeout", "unreachable")
"""How a turn can go: spoken to its end; answered without speech; the server said that it failed; answered with what
is not the protocol; the connection ended first; nothing came for too long; no connection."""


MAX_DETAIL = 300
"""Characters of a server's words that are told."""


class TurnFailedError(Exception):
    """A turn did not go well; `outcome` is one of OUTCOMES, the message one line."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(one_line(detail[:MAX_DETAIL]))
        self.outcome = outcome


@dataclass(frozen=True)
class Heard:
    """What a listener heard of one turn, in milliseconds.

    `rtt_ms` is text sent to first speech received. `underrun_ms` is the silence between a turn's first and last sound.
    `drift_ms` is the drift that was furthest from 0, with its sign: negative where the voice lags.
    """

    rtt_ms: float | None = None
    audio_ms: float = 0.0
    chunks: int = 0
    underrun_ms: float = 0.0
    drift_ms: float | None = None


@dataclass(frozen=True)
class Turn:
    """One turn and how it went."""

    number: int
    outcome: str
    heard: Heard = Heard()
    detail: str | None = None
    words: Words | None = None
    """Text against speech, where a speech recognition was asked."""
    stale_ms: float | None = None
    """How long speech still came after the client spoke up, where it did."""


class Client(Protocol):
    """One side of a conversation with the server."""

    def turn(self, number: int) -> Turn:
        """Ask, and listen to the end. Never raises for what the server or the network does."""

    def close(self) -> None:
        """Leave."""


@dataclass(frozen=True)
class Limits:
    """What is still good; None: anything."""

    rtt_ms: float | None = None
    underrun_ms: float | None = None
    drift_ms: float | None = None
    wer_percent: float | None = None

    def exceeded(self, turn: Turn) -> list[str]:
        """Say, a line each, what of a turn is not good."""
        if turn.outcome != "ok":
            return [f"turn {turn.number}: {turn.outcome}" + (f": {turn.detail}" if turn.detail else "")]
        heard = turn.heard
        return self._words(turn) + [
            f"turn {turn.number}: {what} {value:.1f} ms, past {limit:g} ms"
            for what, value, limit in (
                ("first audio after", heard.rtt_ms, self.rtt_ms),
                ("underrun", heard.underrun_ms, self.underrun_ms),
                ("drift", heard.drift_ms, self.drift_ms),
            )
            if value is not None and limit is not None and abs(value) > limit
        ]

    def _words(self, turn: Turn) -> list[str]:
        if self.wer_percent is None:
            return []
        rate = turn.words.rate if turn.words is not None else None
        if rate is None:
            why = turn.words.error if turn.words is not None else None
            return [f"turn {turn.number}: not transcribed" + (f": {why}" if why else "")]
        if rate * 100 <= self.wer_percent:
            return []
        return [f"turn {turn.number}: word error rate {rate:.1%}, past {self.wer_percent:g} %"]
