"""Tell the ear what one connection carries of a turn: every byte, and where frames of speech end."""

from __future__ import annotations

from collections.abc import Iterable

from omniwatch.tap.asgi import Message, Scope
from omniwatch.tap.claim import Claim
from omniwatch.tap.line import Line


class Carrier:
    """A connection by which a turn is sent, and the turn's claim."""

    def __init__(self, claim: Claim, line: Line, frame_ms: float) -> None:
        self._claim = claim
        self._line = line
        self._frame_ms = frame_ms

    @classmethod
    def of(cls, claim: Claim, scope: Scope, frame_ms: float) -> Carrier | None:
        """Return the carrier of a scope; None where it is not known what arrives by it."""
        line = claim.line(scope)
        if line is None:
            return None
        line.look()
        return cls(claim, line, frame_ms)

    def hand_over(self, message: Message, speech: Iterable[tuple[int, int]]) -> None:
        """Count a message. `speech` has for each frame in it the bytes after it, and the turn's frames up to it."""
        self._line.hand_over(message)
        for after, frames in speech:
            self._claim.mark(self._line, frames * self._frame_ms, after)

    def handed_over(self) -> None:
        """Note that the server has taken what was counted."""
        self._line.handed_over()

    def finish(self) -> None:
        """Note that the turn was handed over to its end."""
        self._line.is_whole = True

    def leave(self) -> None:
        """Note that the connection is given up."""
        self._line.is_left = True
