"""One turn in progress, over any protocol: what was heard, what went wrong, what is reported."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniwatch.desk.probe import Heard, Turn, TurnFailedError
from omniwatch.desk.probe.listening import HeardTurn, Picture
from omniwatch.desk.probe.reporter import Reporter
from omniwatch.desk.probe.sound import Sound
from omniwatch.desk.probe.transcript import Recording, Transcriber
from omniwatch.system.http import MalformedError, UnreachableError, explain
from omniwatch.tap.audio import duration_ms
from omniwatch.tap.partial_json import ELIDED

MAX_MESSAGE_BYTES = 64 * 2**20
"""The longest message taken from a server, and the longest answer: 15 minutes of speech."""
MAX_ANSWER_S = 1200.0
"""Longest time for which an answer is listened to."""


@dataclass(frozen=True)
class Asking:
    """How a client asks. `timeout_s` bounds the wait for a connection and for anything new in an answer; under `name`
    all chat requests are one stream. With `parts`, a chat's message consists of them instead of the text.
    """

    text: str
    timeout_s: float = 30.0
    buffer_ms: float = 80.0
    fps: float = 10.0
    model: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reporter: Reporter | None = None
    transcriber: Transcriber | None = None
    name: str = field(default_factory=lambda: f"probe-{secrets.token_hex(4)}")
    clock: Callable[[], float] = time.monotonic
    parts: Sequence[Mapping[str, Any]] = ()
    sound: Sound | None = None
    """The question, spoken, in place of the text."""
    interrupt_s: float | None = None
    """So many seconds into each answer the client speaks up."""


class Hearing:
    """What is heard in one turn. The client reports its first speech at once, while it goes on listening."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._listener: HeardTurn | None = None
        self._stream: str | None = None
        self.recording = None if asking.transcriber is None else Recording()
        """Text and speech, kept only where they are to be compared."""
        self.stale_ms: float | None = None
        """How long speech still came after the client spoke up."""

    def ask(self, t: float, picture: Picture | None = None) -> None:
        """The text is being sent."""
        self._listener = HeardTurn(t, self._asking.buffer_ms, picture)

    def answered_as(self, stream: str | None) -> None:
        """Take the id under which the server lets this client report, if it gave one."""
        self._stream = stream

    def audio(
        self,
        t: float,
        dur_ms: float,
        sound: str | None = None,
        encoding: str | None = None,
        rate_hz: float | None = None,
    ) -> None:
        """Speech was received: its length, and the base64 text with its format for a transcript."""
        if self.recording is not None and sound:
            self.recording.sound(sound, encoding, rate_hz)
        if self._listener is None:
            return
        first = self._listener.rtt_ms is None
        self._listener.audio(t, dur_ms)
        rtt_ms = self._listener.rtt_ms
        if first and rtt_ms is not None and self._asking.reporter is not None:
            self._asking.reporter.start(self._stream, rtt_ms)

    def said(self, piece: str | None) -> None:
        """Text was received."""
        if self.recording is not None:
            self.recording.text(piece)

    def frame(self, t: float, pts_ms: float) -> None:
        """The client showed a frame of its picture."""
        if self._listener is not None:
            self._listener.frame(t, pts_ms)

    def heard(self) -> Heard:
        """Return what came."""
        return Heard() if self._listener is None else self._listener.heard()


def spoken_ms(content: str, encoding: str | None, rate_hz: float | None = None) -> float:
    """Return the milliseconds of base64 speech from a server. Raises TurnFailedError for what states a length of its own."""
    if ELIDED in content:
        raise TurnFailedError("malformed", "speech that is no base64")
    return duration_ms(content, encoding, rate_hz)


def take_turn(number: int, asking: Asking, converse: Callable[[Hearing], None]) -> Turn:
    """Have one turn: `converse` asks and listens until the answer is complete, or raises what came between."""
    hearing = Hearing(asking)
    outcome, detail = "ok", None
    try:
        converse(hearing)
    except TurnFailedError as error:
        outcome, detail = error.outcome, str(error)
    except TimeoutError:
        outcome, detail = "timeout", f"nothing new for {asking.timeout_s:g} s"
    except UnreachableError as error:
        outcome, detail = "unreachable", str(error)
    except MalformedError as error:
        outcome, detail = "malformed", str(error)
    except OSError as error:
        outcome, detail = "cut", explain(error)
    if asking.reporter is not None:
        asking.reporter.finish()
    heard = hearing.heard()
    if outcome == "ok" and heard.rtt_ms is None:
        outcome = "silent"
    words = None
    if outcome == "ok" and asking.transcriber is not None and hearing.recording is not None:
        words = asking.transcriber.words(hearing.recording)
    return Turn(number, outcome, heard, detail, words, hearing.stale_ms)
