"""One connection of the server's, as the event loop sees it: bytes handed on, and where speech ends among them."""

from __future__ import annotations

import time
from typing import Protocol

from omniwatch.events import Turn
from omniwatch.tap.arrival import Connection, Mark, Speech
from omniwatch.tap.asgi import Message
from omniwatch.tap.inet_diag import ANY_COOKIE, Ends

LOOKS = 5
"""Questions at a turn's begin, at most, for a pair of counts before there is speech."""


class Attention(Protocol):
    """What has the thread ask."""

    def attend(self, line: Line) -> bool:
        """Ask about a connection; False where there is no thread to ask."""

    def carried(self, speech: Speech) -> None:
        """Follow speech that was handed to a middleware outside the tap."""


class Line:
    """A connection by which speech goes to a listener.

    The event loop calls the methods and writes the counts. The ear's thread reads those; all other attributes are its own.
    """

    def __init__(self, its_ends: Ends, ear: Attention, *, doubtful: bool) -> None:
        self.ends = its_ends
        self.doubtful = doubtful
        """Whether the connection is not believed where its round trip is too short for a network."""
        self.handed = 0
        """Bytes of messages that the server was given."""
        self.passed = 0
        """How many of them it has written."""
        self.passed_m = 0.0
        """When it had written them, on the clock that never steps."""
        self.latest: Speech | None = None
        self.looks = 0
        self.is_whole = False
        """Whether the answer was handed on to its end."""
        self.is_left = False
        """Whether the server is done with the connection."""
        self.is_attended = False
        self.is_deaf = False
        """Whether the kernel cannot say what arrives."""
        self.is_gone = False
        self.connection = Connection()
        self.cookie = ANY_COOKIE
        self.due_m = 0.0
        self.asked_m = 0.0
        self.progress_m = 0.0
        self.failing_m: float | None = None
        self._ear = ear

    def speech(self, stream: str, turn: Turn) -> Speech | None:
        """Begin a turn that may be spoken by this connection; None where it will not be known what arrives."""
        if self.is_deaf:
            return None
        speech = self.latest = Speech(stream, turn)
        self.look()
        return None if self.is_deaf else speech

    def look(self) -> None:
        """Have the thread ask for a pair of counts before there is speech."""
        self.looks = LOOKS
        self.attend()

    def hand_over(self, message: Message) -> None:
        """Count a message that the server is about to be given: its text by characters, its body, or its headers."""
        body = message.get("text") or message.get("body")
        self.handed += len(body) if body else _size_without_body(message)

    def handed_over(self) -> None:
        """Note that the server has taken what was counted."""
        self.passed = self.handed
        self.passed_m = time.monotonic()

    def speak(self, speech: Speech, ms: float) -> None:
        """Note that the message counted last has the turn's speech up to `ms`, unless a middleware outside carries it."""
        if speech.is_carried:
            self._ear.carried(speech)
        else:
            self.mark(speech, ms)

    def mark(self, speech: Speech, ms: float, before_end: int = 0) -> None:
        """Note that a message ends here, or so many bytes before, with the turn's speech up to `ms` in it."""
        if not self.is_deaf:
            end = self.handed - before_end
            self.connection.marks.append(Mark(end, ms, speech, time.monotonic()))
            self.attend()

    def attend(self) -> None:
        """Have the thread ask, unless it does."""
        if not self.is_attended:
            self.is_attended = True
            self.is_deaf = not self._ear.attend(self)


def _size_without_body(message: Message) -> int:
    headers = message.get("headers") or ()
    return len(message.get("bytes") or b"") + sum(len(name) + len(value) + 4 for name, value in headers)
