"""Parse the messages of `/v1/realtime`, and track a session's turns and responses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

import msgspec

from omniwatch.tap.audio import duration_ms, is_silent
from omniwatch.tap.stream_events import Moment, StreamEvents

MAX_ANSWERS = 8
"""Responses remembered per session: the latest may still be in flight or playing."""
STATED_WITHIN_MS = 1.0
"""The server rounds positions to milliseconds. Within this tolerance the audio's own length is the more exact."""


class FromClient(msgspec.Struct):
    """What is used of the client's events."""

    type: str
    final: bool | None = None
    create_response: bool | None = None
    response_create: bool | None = None
    played_ms: float | None = None
    audio_end_ms: float | None = None
    response_id: str | None = None
    item_id: str | None = None
    last_received_server_event_seq: int = 0


class Metadata(msgspec.Struct):
    """What goes with a duplex delta; the duration is that of the response so far."""

    audio_duration_ms: float | None = None


class Named(msgspec.Struct):
    """A session or a response."""

    id: str | None = None
    status: str | None = None


class FromServer(msgspec.Struct):
    """What is used of the server's events."""

    type: str
    audio: str | None = None
    delta: str | None = None
    format: str | None = None
    sample_rate_hz: float | None = None
    response_id: str | None = None
    metadata: Metadata | None = None
    id: str | None = None
    session_id: str | None = None
    session: Named | None = None
    response: Named | None = None
    reason: str | None = None
    code: str | None = None
    error: Any = None


class SpokenResponse(msgspec.Struct):
    """One response that speaks: the turn it answers, and how much of it was sent."""

    turn: int
    sent_ms: float = 0.0


class Holder(Protocol):
    """The connection that carries a conversation now."""

    def leave(self, reason: str, outcome: str) -> None:
        """End the connection's stream, and the turns that are open as `outcome`."""


class Conversation:
    """Turns and responses of one session, which a duplex session carries from connection to connection."""

    def __init__(self, stream_events: StreamEvents, owner: str = "") -> None:
        self.stream_events = stream_events
        self.owner = owner
        """Digest of the `Authorization` that the session began with, "" without one: only its owner takes it up again."""
        self.session = ""
        """The id under which it is remembered, "" for none."""
        self.network = ""
        """Where its latest connection is from."""
        self.holder: Holder | None = None
        self.left_m: float | None = None
        """When it was left by its connection, on the clock that never steps."""
        self._turns = 0
        self._asked: int | None = None
        """The turn that waits for its response."""
        self._early: tuple[int, Moment] | None = None
        """The length of text that came before its question, and when it began."""
        self._answers: OrderedDict[str, SpokenResponse] = OrderedDict()
        """The latest responses by their ids, the current one last. By turns they have no id: theirs is ""."""

    def ask(self, at: Moment | None = None) -> None:
        """The client's input is complete. More of it before the answer begins moves nothing: one turn waits."""
        if self._asked is None:
            self._turns += 1
            self._asked = self._turns
            self.stream_events.ask(self._asked, at=at)
            if self._early:
                self.stream_events.write(self._asked, *self._early)
                self._early = None

    def begin(self, response: str) -> None:
        """A response begins that answers the turn that waits, if any does."""
        if self._asked is not None and response not in self._answers:
            self._answer(response, self._asked)
            self._asked = None

    def speak(self, said: FromServer) -> None:
        """A delta of speech."""
        response = said.response_id or ""
        self.begin(response)
        answer = self._answers.get(response)
        if answer is None:
            # The model speaks unasked.
            self._turns += 1
            answer = self._answer(response, self._turns)
        data = said.audio or said.delta or ""
        dur_ms = duration_ms(data, said.format, said.sample_rate_hz)
        stated_ms = said.metadata.audio_duration_ms if said.metadata else None
        if stated_ms is not None and abs(stated_ms - answer.sent_ms - dur_ms) > STATED_WITHIN_MS:
            # Not all formats tell their length, and what is sent again after a cut was counted before.
            dur_ms = max(0.0, stated_ms - answer.sent_ms)
        answer.sent_ms += dur_ms
        if dur_ms > 0:
            self.stream_events.speak(answer.turn, dur_ms, is_silent(data))
        elif stated_ms is not None:
            self.stream_events.repeat(answer.turn, stated_ms)

    def write(self, said: FromServer, *, early: bool) -> None:
        """A delta of text, of a response or of the answer to the turn that waits; `early`: to a question that is still being put."""
        chars = len(said.delta or "")
        answer = self._answers.get(said.response_id or "")
        turn = answer.turn if answer else self._asked
        if turn is not None:
            self.stream_events.write(turn, chars)
        elif chars and early:
            before, at = self._early or (0, self.stream_events.now())
            self._early = before + chars, at

    def played(self, said: FromClient, played_ms: float | None, source: str) -> None:
        """The client's playhead in a response, the current one unless named, and where the client has it from."""
        response = said.response_id or (said.item_id or "").removeprefix("item_")
        if not response and self._answers:
            response = next(reversed(self._answers))
        if response in self._answers and played_ms is not None:
            self.stream_events.heard(self._answers[response].turn, played_ms, source)

    def done(self, response: str, reason: str) -> None:
        """A response ended."""
        if response in self._answers:
            self.stream_events.finish(self._answers[response].turn, reason)
            if not response:
                del self._answers[response]

    def give_up(self, reason: str) -> None:
        """The turn that waits stays without an answer."""
        self.stream_events.finish(self._asked, reason)
        self._asked = None

    def _answer(self, response: str, turn: int) -> SpokenResponse:
        answer = self._answers[response] = SpokenResponse(turn)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return answer
