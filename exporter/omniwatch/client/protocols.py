"""Define the interfaces through which the pure parts act: FrameHandler and SessionHandler."""

from __future__ import annotations

from typing import Any, Protocol


class FrameHandler(Protocol):
    """What a ReorderBuffer calls. Payloads are views that stay valid."""

    def format(self, sound: dict[str, Any]) -> None:
        """Prepare for speech of `sample_rate_hz` and `channels`, from here on."""

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        """Play a frame at `play_at` (the session's clock)."""

    def text(self, text: str) -> None:
        """Show text."""

    def event(self, payload: memoryview) -> None:
        """Handle an event of the model server (JSON)."""

    def lost(self, from_id: int, count: int) -> None:
        """Conceal 80 ms for each frame that will not come and that the decoder has not concealed."""

    def rtx(self, from_id: int, count: int) -> None:
        """Request retransmission of frames."""


class SessionHandler(FrameHandler, Protocol):
    """What a Session calls. `conn` numbers its connections."""

    def open(self, conn: int) -> None:
        """Connect to the server, then call `opened` or `closed`."""

    def ask(self, conn: int, body: dict[str, Any] | None) -> None:
        """Send `POST /v1/resume` with this body on a connection, or, without a body, the chat request."""

    def drop(self, conn: int) -> None:
        """Close a connection."""

    def realign(self, shift_ms: float) -> None:
        """Drop |shift_ms| of the audio that waits to be played (negative), or pause for that long (positive)."""

    def resumed(self, result: str, outage_s: float, answer_s: float, late_s: float) -> None:
        """Note new data after an outage: `answer_s` after the first attempt, `late_s` after the player ran dry."""

    def ended(self, reason: str) -> None:
        """End the turn: "done", or why it ended before."""
