"""A plain reading of a whole realtime session, written from the protocol's description. It shares no code with the tap.

https://developers.openai.com/api/reference/resources/realtime
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BYTES_PER_S = {
    "audio/pcm": 48_000,
    "audio/pcmu": 8_000,
    "audio/pcma": 8_000,
    "pcm16": 48_000,
    "g711_ulaw": 8_000,
    "g711_alaw": 8_000,
}


class Said(NamedTuple):
    """One event, and when it was said, in seconds."""

    t: float
    event: dict[str, Any]


@dataclass
class ReadTurn:
    """One turn: when it was asked for, what was said in it (ms), how it ended, and what is known of its listener."""

    number: int
    asked_t: float | None = None
    speech_ms: list[float] = field(default_factory=list)
    outcome: str | None = None
    interrupted_t: float | None = None
    truncated_ms: list[float] = field(default_factory=list)
    is_spoken_over: bool = False
    heard_until_t: float = 0.0
    began_t: float | None = None


@dataclass
class _Response:
    turn: ReadTurn | None = None
    format: str | None = None
    is_cut: bool = False
    is_over: bool = False
    has_unknown_speech: bool = False

    @property
    def sent_ms(self) -> float:
        return sum(self.turn.speech_ms) if self.turn else 0.0


class Reader:
    """Reads a session event by event; `turns` are those found."""

    def __init__(self) -> None:
        self.turns: list[ReadTurn] = []
        self._session: dict[str, Any] = {}
        self._waiting: ReadTurn | None = None
        self._latest: ReadTurn | None = None
        self._responses: dict[str, _Response] = {}
        self._items: dict[str, tuple[str, float]] = {}
        self._requests: dict[str, ReadTurn | None] = {}
        self._apart = 0
        self._commit_is_announced = False
        self._t = 0.0

    def read(self, said: list[Said]) -> list[ReadTurn]:
        """Read all of it; a turn that is open at the end is aborted."""
        for self._t, event in said:
            handle = getattr(self, "_on_" + event["type"].replace(".", "_"), None)
            if handle:
                handle(event)
        for turn in self.turns:
            turn.outcome = turn.outcome or "aborted"
        return self.turns

    def _on_session_created(self, event: dict[str, Any]) -> None:
        """What a session does not state stays as it was; at first it speaks PCM, and VAD has it answer."""
        session = event["session"]
        audio = session.get("audio") or {}
        out, heard = audio.get("output") or {}, audio.get("input") or {}
        if "turn_detection" in heard:
            self._session["vad"] = heard["turn_detection"]
        for name, value in (
            ("type", session.get("type")),
            ("modalities", session.get("output_modalities")),
            ("format", (out.get("format") or {}).get("type")),
        ):
            if value:
                self._session[name] = value

    _on_session_updated = _on_session_created

    def _on_response_create(self, event: dict[str, Any]) -> None:
        response = event.get("response") or {}
        if response.get("conversation") == "none":
            self._apart += 1
            self._requests[event.get("event_id") or ""] = None
        elif self._is_spoken(response):
            before = self._waiting
            self._ask()
            if before is None and self._waiting:
                self._requests[event.get("event_id") or ""] = self._waiting

    def _on_input_audio_buffer_commit(self, event: dict[str, Any]) -> None:
        self._commit_is_announced = True

    def _on_input_audio_buffer_speech_started(self, event: dict[str, Any]) -> None:
        self._commit_is_announced = False
        self._speak_up(by_voice=True)

    def _on_input_audio_buffer_speech_stopped(self, event: dict[str, Any]) -> None:
        self._commit_is_announced = True
        self._ask_by_vad()

    def _on_input_audio_buffer_committed(self, event: dict[str, Any]) -> None:
        if not self._commit_is_announced and self._session.get("vad", {}) is not None:
            self._ask_by_vad()
        self._commit_is_announced = False

    def _on_response_created(self, event: dict[str, Any]) -> None:
        stated = event["response"]
        name = stated.get("id") or ""
        if name in self._responses:
            return
        response = self._responses[name] = _Response()
        audio = stated.get("audio") or {}
        response.format = ((audio.get("output") or {}).get("format") or {}).get("type")
        if self._apart and not stated.get("conversation_id"):
            self._apart -= 1
        elif "audio" in (stated.get("output_modalities") or ["audio"]):
            response.turn, self._waiting = self._waiting, None

    def _on_response_output_item_added(self, event: dict[str, Any]) -> None:
        response = self._responses.get(event["response_id"])
        if event["item"].get("id"):
            self._items[event["item"]["id"]] = event["response_id"], response.sent_ms if response else 0.0

    def _on_response_output_audio_delta(self, event: dict[str, Any]) -> None:
        response = self._responses.get(event["response_id"])
        if response is None:
            response = self._responses[event["response_id"]] = _Response(self._waiting)
            self._waiting = None
        if response.is_over:
            return
        name = response.format or self._session.get("format", "audio/pcm")
        if name not in BYTES_PER_S:
            response.has_unknown_speech = True
            return
        ms = len(base64.b64decode(event["delta"])) / BYTES_PER_S[name] * 1000
        if ms:
            turn = response.turn = response.turn or self._begin()
            self._latest = turn
            turn.speech_ms.append(ms)
            turn.began_t = self._t if turn.began_t is None else turn.began_t
            turn.heard_until_t = max(turn.heard_until_t, self._t) + ms / 1000

    def _on_response_done(self, event: dict[str, Any]) -> None:
        stated = event["response"]
        response = self._responses.get(stated.get("id") or "")
        if response is None or response.is_over:
            return
        response.is_over = True
        turn, status = response.turn, stated.get("status") or "completed"
        reason = (stated.get("status_details") or {}).get("reason")
        is_barged_in = status == "cancelled" and reason == "turn_detected"
        if turn and is_barged_in and turn.interrupted_t is None and self._is_heard(turn):
            turn.interrupted_t = self._t
        if turn is None or turn.outcome:
            return
        is_barged_in = is_barged_in or (status == "cancelled" and turn.is_spoken_over)
        kinds = [item["type"] for item in stated.get("output") or []]
        if (status != "failed" and response.is_cut) or is_barged_in:
            status = "interrupted"
        elif status == "completed" and not turn.speech_ms:
            if response.has_unknown_speech:
                status = "unmeasured"
            elif kinds and "message" not in kinds:
                status = "called"
        turn.outcome = status

    def _on_error(self, event: dict[str, Any]) -> None:
        name = event["error"].get("event_id")
        if name and name in self._requests:
            turn = self._requests.pop(name)
            if turn is None:
                self._apart = max(0, self._apart - 1)
            elif not turn.outcome:
                turn.outcome = "failed"
                self._waiting = None if turn is self._waiting else self._waiting

    def _on_response_cancel(self, event: dict[str, Any]) -> None:
        self._speak_up(by_voice=False)

    def _on_conversation_item_truncate(self, event: dict[str, Any]) -> None:
        name, before_ms = self._items.get(event["item_id"], ("", 0.0))
        response = self._responses.get(name)
        heard_ms = before_ms + event["audio_end_ms"]
        turn = response.turn if response else None
        if response and turn and (heard_ms < response.sent_ms or self._is_heard(turn)):
            response.is_cut = True
            turn.interrupted_t = self._t if turn.interrupted_t is None else turn.interrupted_t
            turn.truncated_ms.append(heard_ms)

    def _on_output_audio_buffer_clear(self, event: dict[str, Any]) -> None:
        if self._responses:
            self._clear([*self._responses.values()][-1])

    def _on_output_audio_buffer_cleared(self, event: dict[str, Any]) -> None:
        if event["response_id"] in self._responses:
            self._clear(self._responses[event["response_id"]])

    def _clear(self, response: _Response) -> None:
        turn = response.turn
        if turn and not response.is_cut and self._is_heard(turn):
            response.is_cut = True
            turn.interrupted_t = self._t if turn.interrupted_t is None else turn.interrupted_t
            if turn.began_t is not None:
                turn.truncated_ms.append(min(response.sent_ms, (self._t - turn.began_t) * 1000))

    def _speak_up(self, *, by_voice: bool) -> None:
        turn = self._latest
        if turn and turn.interrupted_t is None and self._is_heard(turn):
            turn.interrupted_t, turn.is_spoken_over = self._t, by_voice

    def _is_heard(self, turn: ReadTurn) -> bool:
        return turn.outcome is None or self._t < turn.heard_until_t

    def _is_spoken(self, response: dict[str, Any]) -> bool:
        stated = response.get("output_modalities") or self._session.get("modalities") or ["audio"]
        return "audio" in stated and self._session.get("type", "realtime") == "realtime"

    def _ask_by_vad(self) -> None:
        vad = self._session.get("vad", {})
        if (vad or {}).get("create_response") is not False and self._is_spoken({}):
            if self._waiting and self._waiting.is_spoken_over:
                self._waiting.outcome = self._waiting.outcome or "interrupted"
                self._waiting = None
            self._ask()

    def _ask(self) -> None:
        if self._waiting is None:
            self._waiting = self._latest = self._begin()
            self._waiting.asked_t = self._t

    def _begin(self) -> ReadTurn:
        self.turns.append(ReadTurn(len(self.turns) + 1))
        return self.turns[-1]
