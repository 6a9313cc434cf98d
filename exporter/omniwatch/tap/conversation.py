"""Parse the messages of `/v1/realtime`, and track a session's turns and responses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

import msgspec

from omniwatch.tap.audio import duration_ms, is_silent
from omniwatch.tap.stream_events import Moment, StreamEvents
from omniwatch.tap.stream_name import MAX_NAME

MAX_ANSWERS = 8
"""Responses remembered per session: the latest may still be in flight or playing."""
STATED_WITHIN_MS = 1.0
"""The server rounds positions to milliseconds. Within this tolerance the audio's own length is the more exact."""

BARGED_IN = ("turn_detected", "barge_in")
"""Why a response was cancelled, where the user spoke up; the second is vLLM-Omni's word."""


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
    event_id: str | None = None
    response: Any = None
    last_received_server_event_seq: int = 0


class Metadata(msgspec.Struct):
    """What goes with a duplex delta; the duration is that of the response so far."""

    audio_duration_ms: float | None = None


class FromServer(msgspec.Struct):
    """What is used of the server's events."""

    type: str
    audio: str | None = None
    delta: str | None = None
    format: str | None = None
    sample_rate_hz: float | None = None
    response_id: str | None = None
    item_id: str | None = None
    metadata: Metadata | None = None
    id: str | None = None
    session_id: str | None = None
    session: Any = None
    response: Any = None
    item: Any = None
    reason: str | None = None
    code: str | None = None
    error: Any = None
    server_event_seq: int | None = None
    resume_token: str | None = None


class SpokenResponse(msgspec.Struct):
    """One response: the turn it answers, None before it speaks unasked, and how much of it was sent."""

    turn: int | None
    sent_ms: float = 0.0
    is_cut: bool = False
    """Whether its listener hears no more of it."""
    is_over: bool = False
    is_unmeasured: bool = False
    """Whether there was speech of unknown length."""


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

    def ask(self, at: Moment | None = None) -> int | None:
        """The client's input is complete: return the turn that begins. More before the answer moves nothing: one turn waits."""
        if self._asked is not None:
            return None
        self._turns += 1
        self._asked = self._turns
        self.stream_events.ask(self._asked, at=at)
        if self._early:
            self.stream_events.write(self._asked, *self._early)
            self._early = None
        return self._asked

    def begin(self, response: str) -> None:
        """A response begins that answers the turn that waits, if any does."""
        if self._asked is not None and response not in self._answers:
            self._answer(response, self._asked)
            self._asked = None

    def speak(self, said: FromServer) -> None:
        """A delta of speech."""
        response = said.response_id or ""
        self.begin(response)
        answer = self._answers.get(response) or self._answer(response, None)
        turn = self._turn_of(answer)
        data = said.audio or said.delta or ""
        dur_ms = duration_ms(data, said.format, said.sample_rate_hz)
        stated_ms = said.metadata.audio_duration_ms if said.metadata else None
        if stated_ms is not None and abs(stated_ms - answer.sent_ms - dur_ms) > STATED_WITHIN_MS:
            # Not all formats tell their length, and what is sent again after a cut was counted before.
            dur_ms = max(0.0, stated_ms - answer.sent_ms)
        answer.sent_ms += dur_ms
        if dur_ms > 0:
            self.stream_events.speak(turn, dur_ms, is_silent(data))
        elif stated_ms is not None:
            self.stream_events.repeat(turn, stated_ms)

    def write(self, said: FromServer, *, early: bool) -> None:
        """Count text for its response's turn, else for the turn that waits; `early`: its question is still being put."""
        chars = len(said.delta or "")
        answer = self._answers.get(said.response_id or "")
        turn = answer.turn if answer else self._asked
        if turn is not None:
            self.stream_events.write(turn, chars)
        elif chars and early:
            before, at = self._early or (0, self.stream_events.now())
            self._early = before + chars, at

    def played(self, said: FromClient) -> None:
        """The client's playhead in a response, by its player."""
        answer, _ = self._place(said.response_id, said.item_id)
        if answer and answer.turn is not None and said.played_ms is not None:
            self.stream_events.heard(answer.turn, said.played_ms, "player")

    def truncate(self, said: FromClient) -> None:
        """The listener hears no more of an answer from there on, as a framework reckons it from what it queued."""
        answer, before_ms = self._place(said.response_id, said.item_id)
        if answer and said.audio_end_ms is not None:
            heard_ms = before_ms + said.audio_end_ms
            if self._interrupt(answer, is_cut=heard_ms < answer.sent_ms) and answer.turn is not None:
                self.stream_events.heard(answer.turn, heard_ms, "framework")

    def clear(self, response: str | None) -> None:
        """What was sent of an answer, the latest unless named, and is not heard yet is thrown away."""
        answer, _ = self._place(response, None)
        if answer and answer.turn is not None and not answer.is_cut and self._interrupt(answer):
            self.stream_events.cut_off(answer.turn)

    def speaks_up(self, *, by_voice: bool) -> None:
        """The user speaks, or has the answer stopped."""
        self.stream_events.interrupt(self.stream_events.turn, by_voice=by_voice)

    def done(self, response: str, status: str, reason: str = "") -> None:
        """A response ended as `status` says; `reason`: why it was cancelled."""
        answer = self._answers.get(response)
        if answer:
            # Some servers call every end the client's wish; some give the reason before they say that the user speaks.
            by_user = reason in BARGED_IN or self.stream_events.is_spoken_over(answer.turn)
            if status == "cancelled" and by_user:
                self.stream_events.interrupt(answer.turn)
                status = "interrupted"
            elif answer.is_cut and status != "failed":
                status = "interrupted"
            self.stream_events.finish(answer.turn, status[:MAX_NAME])
            if not response:
                del self._answers[response]

    def give_up(self, reason: str) -> None:
        """The turn that waits stays without an answer."""
        self.stream_events.finish(self._asked, reason)
        self._asked = None

    def _place(self, response: str | None, item: str | None) -> tuple[SpokenResponse | None, float]:
        """Return the response that is meant, the current one unless named, and how much of it comes before the item."""
        response = response or (item or "").removeprefix("item_")
        if not response and self._answers:
            response = next(reversed(self._answers))
        return self._answers.get(response), 0.0

    def _interrupt(self, answer: SpokenResponse, *, is_cut: bool = False) -> bool:
        """Note that the listener hears no more; return whether there was more to hear."""
        if not self.stream_events.interrupt(answer.turn, is_cut=is_cut):
            return False
        answer.is_cut = True
        return True

    def _turn_of(self, answer: SpokenResponse) -> int:
        """Return the turn of a response that speaks, its own where the model speaks unasked."""
        if answer.turn is None:
            self._turns += 1
            answer.turn = self._turns
        return answer.turn

    def _answer(self, response: str, turn: int | None) -> SpokenResponse:
        answer = self._answers[response] = SpokenResponse(turn)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return answer


def text_of(of: Any, *names: str) -> str:
    """Return a text deep in what was decoded; "" where there is none."""
    for name in names:
        of = of.get(name) if isinstance(of, dict) else None
    return of if isinstance(of, str) else ""
