"""What a session needs of others: how patient it is to be, who hears it, who does what it wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Config:
    """The protocol's windows and the client's patience: frames, seconds, milliseconds, as the names say."""

    silence_s: float = 1.0
    """Nothing heard for so long, nor for four of the server's "still here": the network is lost."""
    hurry_s: float = 0.5
    """The same, where there is no more to play than a return takes; two of the server's "still here" if that is longer."""
    client_win: int = 150
    """Frames kept: those that wait for one before them, and the newest that were heard."""
    cache_win: int = 75
    """The most frames asked for at once, where the server does not say how many it holds for certain."""
    rtx_thr: int = 3
    """So many frames missing in a row are asked for again."""
    rtx_again_s: float = 0.3
    """Asked for in vain, they are asked for again after so long."""
    rtx_patience_s: float = 1.0
    """After so long they are given up."""
    reorder_s: float = 0.1
    """Fewer missing frames are waited for so long, and longer while there is something to play."""
    drift_ms: float = 40.0
    """Past this, sound is forced back onto the picture."""
    playout_ms: float = 80.0
    """What is held back before the first frame plays."""
    backoff_s: float = 1.0
    """The longest pause between two attempts to come back."""
    answer_s: float = 10.0
    """How long the model server may take to begin its answer."""
    give_up_s: float | None = None
    """Without a way to the server for so long, the turn is given up; None: when the server has done so for certain."""


class Listener(Protocol):
    """Who hears the turn. Payloads are views that stay valid."""

    def format(self, sound: dict[str, Any]) -> None:
        """Say what speech is from here on: `sample_rate_hz`, `channels`, `frame_samples`."""

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        """Play a frame, from `play_at` (the session's clock) on."""

    def text(self, text: str) -> None:
        """Show text."""

    def event(self, payload: memoryview) -> None:
        """Take an event of the model server (JSON)."""

    def lost(self, from_id: int, count: int) -> None:
        """Frames will not come: conceal 80 ms for each."""

    def rtx(self, from_id: int, count: int) -> None:
        """Ask the server for frames again."""


class Handler(Listener, Protocol):
    """What a session wants done. `conn` numbers its connections."""

    def open(self, conn: int) -> None:
        """Connect to the server, then call `opened` or `closed`."""

    def ask(self, conn: int, body: dict[str, Any] | None) -> None:
        """Ask on a connection to go on with the turn (`POST /v1/resume`), or, without a body, to begin it."""

    def drop(self, conn: int) -> None:
        """Close a connection; nothing more of it is wanted."""

    def realign(self, shift_ms: float) -> None:
        """Drop so much of what waits to be played (negative), or hold still for so long."""

    def resumed(self, result: str, outage_s: float, answer_s: float, late_s: float) -> None:
        """Something new is heard after an outage: `answer_s` after the first attempt, `late_s` after the player ran dry."""

    def ended(self, reason: str) -> None:
        """Nothing follows: "done", or why not."""
