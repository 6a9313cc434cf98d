"""What the tap tells a middleware outside it, which may carry a chat's answer to the client by connections of its own."""

from __future__ import annotations

from omniwatch.tap.arrival import Speech
from omniwatch.tap.asgi import Scope
from omniwatch.tap.ear import Ear
from omniwatch.tap.line import Line

CLAIM = "omniwatch.claim"
"""Key of a Claim in a chat's scope. The middleware puts it there, and the tap fills it in."""


class Claim:
    """The name of a chat's stream and its speech. Empty where there is no tap behind, or no ear."""

    def __init__(self) -> None:
        self.stream: str | None = None
        """The name that the tap gave to the stream."""
        self._ear: Ear | None = None
        self._speech: Speech | None = None
        self._is_carried = False

    def name(self, stream: str, ear: Ear) -> None:
        """Fill in the stream's name (the tap)."""
        self.stream, self._ear = stream, ear

    def begin(self, speech: Speech | None) -> None:
        """Fill in the turn's speech, once there is a turn (the tap)."""
        self._speech = speech
        if self._is_carried:
            self.carry()

    def carry(self) -> None:
        """Take the answer over from the tap's connection (the middleware)."""
        self._is_carried = True
        if self._speech:
            self._speech.is_carried = self._speech.is_held = True

    def line(self, scope: Scope) -> Line | None:
        """Return a connection that carries the answer; None where it is not known what arrives by it."""
        line = self._ear.line(scope) if self._ear else None
        if line is None and self._ear and self._speech:
            self._ear.lose(self._speech)
        return line

    def mark(self, line: Line, ms: float, before_end: int) -> None:
        """Note that a message by `line` has the turn's speech up to `ms`, so many bytes before its end."""
        if self._speech:
            line.mark(self._speech, min(ms, self._speech.handed_ms), before_end)

    def heard(self, ms: float, ago_s: float) -> None:
        """Take the client's word that it has the speech up to `ms`, and how long it has heard nothing more."""
        if self._speech and self._ear and ms > 0:
            self._ear.heard(self._speech, min(ms, self._speech.handed_ms), ago_s)

    def let_go(self) -> None:
        """Nothing more of the answer will be sent."""
        if self._speech:
            self._speech.is_held = False
