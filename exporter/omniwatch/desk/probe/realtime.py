"""Run turns over `WS /v1/realtime`, in the dialect that the server's greeting names: OpenAI's, or vLLM-Omni 0.30's by turns."""

from __future__ import annotations

import base64
import logging
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException

from omniwatch.desk.probe import Turn, TurnFailedError
from omniwatch.desk.probe.sound import Sound
from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.turn import MAX_ANSWER_S, MAX_MESSAGE_BYTES, Asking, Hearing, spoken_ms, take_turn
from omniwatch.desk.probe.websocket import Link, open_link
from omniwatch.system.errors import UserError

log = logging.getLogger(__name__)

PIECE_S = 0.04
"""So much of the question's sound goes in one message."""
RATES_HZ = {"general": 24_000, "turns": 16_000}
"""What a dialect takes 16-bit sound at."""
ENCODINGS = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
OLDER_ENCODINGS = ("pcm16", "g711_ulaw", "g711_alaw")
SPEECH = ("response.output_audio.delta", "response.audio.delta")
SPOKEN_TEXT = (
    "response.output_audio_transcript.delta",
    "response.audio_transcript.delta",
    "transcription.delta",
)
ENDS_BY_TURNS = ("response.output_audio.done", "response.audio.done")


class Said(msgspec.Struct):
    """What is used of the server's messages."""

    type: str
    audio: str | None = None
    delta: str | None = None
    format: str | None = None
    sample_rate_hz: float | None = None
    response_id: str | None = None
    item_id: str | None = None
    server_event_seq: int | None = None
    resume_token: str | None = None
    session: Any = None
    response: Any = None
    error: Any = None
    message: str | None = None


_said = msgspec.json.Decoder(Said)


class _Answer:
    """An answer that is being listened to."""

    def __init__(self) -> None:
        self.response = self.item = ""
        self.first_t: float | None = None
        self.received_ms = 0.0
        self.is_done = False
        self.spoke_up_t: float | None = None
        self.last_stale_t = 0.0


class RealtimeClient:
    """A session. It is opened anew after a turn that failed."""

    def __init__(self, target: Target, asking: Asking) -> None:
        self._target = target
        self._asking = asking
        self._link: Link | None = None
        self._closing = ExitStack()
        self._dialect = ""
        self._encoding: str | None = "pcm16"
        self._asked = 0
        self._early: list[Said] = []
        """What the server said while the question was still being put."""

    def turn(self, number: int) -> Turn:
        """Ask once, on the session that is open or a new one. Raises UserError where the options do not fit the server."""
        turn = take_turn(number, self._asking, self._converse)
        if turn.outcome != "ok":
            # What is left of its answer must not be taken for the next one's.
            if self._link is not None:
                self._link.abort()
            self.close()
        return turn

    def close(self) -> None:
        """Leave."""
        link, self._link = self._link, None
        if link is not None:
            try:
                link.close()
            except (WebSocketException, OSError):
                link.abort()
        try:
            self._closing.close()
        except Exception:
            log.debug("session not closed in order", exc_info=True)

    def _converse(self, hearing: Hearing) -> None:
        try:
            link = self._link or self._open()
            hearing.answered_as(link.stream_id)
            link.allow(MAX_MESSAGE_BYTES)
            self._asked += 1
            if self._dialect == "general":
                self._ask(link, hearing)
            else:
                self._ask_by_turns(link, hearing)
            self._listen(link, hearing)
        except ConnectionClosed as error:
            raise TurnFailedError("cut", f"the websocket was closed: {error}") from error

    def _open(self) -> Link:
        asking = self._asking
        query = f"?model={quote(asking.model)}" if asking.model else ""
        self._link = link = open_link(self._target.url + query, self._target, asking, self._closing)
        link.allow(MAX_MESSAGE_BYTES)
        self._early, self._encoding = [], "pcm16"
        deadline = asking.clock() + asking.timeout_s
        while (said := self._next(link, deadline)).type != "session.created":
            if said.type == "error":
                raise TurnFailedError("error", _words(said))
        self._dialect = _dialect_of(said)
        is_stated = self._take_format(said)
        sound, rate_hz = asking.sound, RATES_HZ[self._dialect]
        if sound and sound.rate_hz != rate_hz:
            raise UserError(f"--audio: expected {rate_hz} Hz for this server, got {sound.rate_hz}")
        if self._dialect == "general":
            form = {"type": "audio/pcm", "rate": rate_hz}
            audio: dict[str, Any] = {"input": {"format": form, "turn_detection": None}}
            if not is_stated:
                # Servers differ in what they speak unasked.
                audio["output"] = {"format": form}
            self._send(link, "session.update", session={"type": "realtime", "audio": audio})
        elif sound is None:
            raise UserError("--audio: needed, for this server goes by turns and takes speech only")
        elif asking.interrupt_s is not None:
            raise UserError("--interrupt: this server goes by turns, and an answer cannot be broken off")
        elif not asking.model:
            raise UserError("--model: needed, for this server goes by turns and names none")
        else:
            self._send(link, "session.update", model=asking.model)
        return link

    def _ask(self, link: Link, hearing: Hearing) -> None:
        if self._asking.sound:
            self._speak(link, self._asking.sound)
            self._send(link, "input_audio_buffer.commit")
        else:
            content = [{"type": "input_text", "text": self._asking.text}]
            self._send(
                link, "conversation.item.create", item={"type": "message", "role": "user", "content": content}
            )
        hearing.ask(self._asking.clock())
        self._send(link, "response.create")

    def _ask_by_turns(self, link: Link, hearing: Hearing) -> None:
        assert self._asking.sound
        self._send(link, "input_audio_buffer.commit", final=False)
        self._speak(link, self._asking.sound)
        hearing.ask(self._asking.clock())
        self._send(link, "input_audio_buffer.commit", final=True)

    def _speak(self, link: Link, sound: Sound) -> None:
        """Send the question's sound at the pace at which it is spoken."""
        due = self._asking.clock()
        for piece in sound.pieces(PIECE_S):
            self._send(link, "input_audio_buffer.append", audio=base64.b64encode(piece).decode())
            due += PIECE_S
            while self._asking.clock() < due:
                try:
                    self._early.append(self._next(link, due))
                except TimeoutError:
                    break

    def _listen(self, link: Link, hearing: Hearing) -> None:
        """Take messages until the answer is complete, and speak up in it where that is asked for."""
        asking, clock, answer = self._asking, self._asking.clock, _Answer()
        deadline, ends_at = clock() + asking.timeout_s, clock() + MAX_ANSWER_S
        while True:
            speaks_up_at = self._speaks_up_at(answer)
            if answer.is_done and (speaks_up_at is None or speaks_up_at > self._heard_at(answer)):
                break
            if clock() > ends_at:
                raise TurnFailedError("timeout", f"the answer went on for more than {MAX_ANSWER_S:g} s")
            if speaks_up_at is not None and clock() >= speaks_up_at:
                self._speak_up(link, answer)
                continue
            try:
                said = (
                    self._early.pop(0)
                    if self._early
                    else self._next(link, deadline if speaks_up_at is None else min(deadline, speaks_up_at))
                )
            except TimeoutError:
                if speaks_up_at is None or clock() >= deadline:
                    raise
                continue
            t = clock()
            deadline = t + asking.timeout_s
            self._take(said, t, answer, hearing)
        if answer.spoke_up_t is not None:
            hearing.stale_ms = max(0.0, answer.last_stale_t - answer.spoke_up_t) * 1000.0

    def _take(self, said: Said, t: float, answer: _Answer, hearing: Hearing) -> None:
        response = said.response if isinstance(said.response, dict) else {}
        if said.type in SPEECH:
            self._hear(said, t, answer, hearing)
        elif said.type in SPOKEN_TEXT:
            hearing.said(said.delta)
        elif said.type in ("session.created", "session.updated"):
            self._take_format(said)
        elif said.type == "response.created":
            answer.response = answer.response or str(response.get("id") or "")
        elif said.type == "response.done" and response.get("id") in (answer.response, None):
            self._end(response, answer)
        elif said.type in ENDS_BY_TURNS and self._dialect == "turns":
            answer.is_done = True
        elif said.type == "error" and answer.spoke_up_t is None and self._is_about_us(said):
            raise TurnFailedError("error", _words(said))

    def _hear(self, said: Said, t: float, answer: _Answer, hearing: Hearing) -> None:
        if answer.spoke_up_t is not None:
            answer.last_stale_t = t
            return
        encoding = said.format or self._encoding
        if encoding is None:
            raise TurnFailedError("malformed", "speech in a format that the probe does not know")
        sound = said.audio or said.delta or ""
        ms = spoken_ms(sound, encoding, said.sample_rate_hz)
        if answer.first_t is None and ms > 0:
            answer.first_t = t
        answer.item = said.item_id or answer.item
        answer.received_ms += ms
        hearing.audio(t, ms, sound, encoding, said.sample_rate_hz)

    def _end(self, response: dict[str, Any], answer: _Answer) -> None:
        status = response.get("status") or "completed"
        if status != "completed" and answer.spoke_up_t is None:
            raise TurnFailedError("error", f"the answer is {status}: {response.get('status_details')}")
        answer.is_done = True

    def _speaks_up_at(self, answer: _Answer) -> float | None:
        if self._asking.interrupt_s is None or answer.first_t is None or answer.spoke_up_t is not None:
            return None
        return answer.first_t + self._asking.interrupt_s

    def _heard_at(self, answer: _Answer) -> float:
        """Return when all that was received will have been heard."""
        return (answer.first_t or 0.0) + (self._asking.buffer_ms + answer.received_ms) / 1000.0

    def _speak_up(self, link: Link, answer: _Answer) -> None:
        answer.spoke_up_t = t = self._asking.clock()
        played_ms = (t - (answer.first_t or t)) * 1000.0 - self._asking.buffer_ms
        if not answer.is_done:
            self._send(link, "response.cancel")
        if answer.item:
            heard_ms = int(min(max(0.0, played_ms), answer.received_ms))
            self._send(
                link,
                "conversation.item.truncate",
                item_id=answer.item,
                content_index=0,
                audio_end_ms=heard_ms,
            )

    def _is_about_us(self, said: Said) -> bool:
        event = said.error.get("event_id") if isinstance(said.error, dict) else None
        return event is None or str(event).endswith(f".{self._asked}")

    def _take_format(self, said: Said) -> bool:
        """Note in which format the session speaks; return whether it states one."""
        session = said.session if isinstance(said.session, dict) else {}
        audio = session.get("audio")
        stated = audio.get("output") if isinstance(audio, dict) else None
        form = stated.get("format") if isinstance(stated, dict) else session.get("output_audio_format")
        name = form.get("type") if isinstance(form, dict) else form
        if name:
            self._encoding = ENCODINGS.get(name, name if name in OLDER_ENCODINGS else None)
        return bool(name)

    def _send(self, link: Link, kind: str, **fields: Any) -> None:
        link.send(self._asking.timeout_s, type=kind, event_id=f"{kind}.{self._asked}", **fields)

    def _next(self, link: Link, deadline: float) -> Said:
        raw = link.receive(max(0.0, deadline - self._asking.clock()))
        try:
            return _said.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TurnFailedError("malformed", f"{error}: {raw[:60]!r}") from error


def _dialect_of(greeting: Said) -> str:
    """Return the dialect that a greeting names. Raises UserError for vLLM-Omni 0.30's duplex one."""
    session = greeting.session
    if greeting.server_event_seq is not None or greeting.resume_token is not None:
        raise UserError(
            "URL: the server speaks vLLM-Omni 0.30's duplex dialect there, which the probe does not"
        )
    if session is None:
        return "turns"
    if not isinstance(session, dict) or not ("type" in session or "object" in session):
        raise UserError(
            "URL: the server speaks vLLM-Omni 0.30's duplex dialect there, which the probe does not"
        )
    return "general"


def _words(said: Said) -> str:
    nested = said.error if isinstance(said.error, dict) else {}
    return str(nested.get("message") or nested.get("code") or said.message or said.error or "")
