"""The general realtime protocol, as OpenAI defines it: what its events say of turns and of speech."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from omniwatch.tap.audio import duration_ms, is_silent
from omniwatch.tap.conversation import Conversation, FromClient, FromServer, SpokenResponse, text_of
from omniwatch.tap.stream_events import StreamEvents

FORMATS = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
"""Names of formats, today's by the older ones."""
MAX_ITEMS = 32
"""Items of answers remembered per session, and requests."""
UNKNOWN_FORMAT = "speech in a format that is not known counts no length: %.64r"
_ASIDE = -1
"""Stands for the turn of a request whose response belongs to no conversation."""


class General(Conversation):
    """Turns and responses of one session. `tell` logs what is worth a line, once."""

    def __init__(self, stream_events: StreamEvents, owner: str, tell: Callable[..., None]) -> None:
        super().__init__(stream_events, owner)
        self._tell = tell
        self._format: tuple[str, float | None] | None = ("pcm16", None)
        """Encoding and rate of the session's speech; None: not known."""
        self._vad_answers = self._has_vad = True
        self._modalities: list[Any] = ["audio"]
        self._is_realtime = True
        """Whether the session answers: one that transcribes or translates has no turns."""
        self._is_stopped = self._is_by_hand = False
        """Whether the user's speech ended, or the client commits it, before the server says that it is committed."""
        self._aside = 0
        """Responses asked for that belong to no conversation."""
        self._formats: OrderedDict[str, tuple[str, float | None] | None] = OrderedDict()
        """By response id, the format of speech that a response states for itself; None: not known."""
        self._items: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """By its id the response that an item is of, and how much of it was sent before."""
        self._requests: OrderedDict[str, int] = OrderedDict()
        """By their event's id the turns that requests began."""

    def client_said(self, said: FromClient) -> None:
        """Take requests for responses."""
        kind = said.type
        if kind == "response.create":
            self._create(said)
        elif kind == "input_audio_buffer.commit":
            self._is_by_hand = True

    def server_said(self, said: FromServer) -> None:
        """Take responses, speech, and what the session says of itself."""
        kind, response = said.type, said.response_id or text_of(said.response, "id")
        if kind in ("response.output_audio.delta", "response.audio.delta"):
            self.speak(said)
        elif kind == "response.created":
            self._created(response, said.response)
        elif kind == "response.done":
            self._done(response, said.response)
        elif kind == "response.output_item.added":
            self._remember(self._items, text_of(said.item, "id"), (response, self._sent_ms(response)))
        elif kind in ("session.created", "session.updated"):
            self._configure(said.session)
        elif kind == "input_audio_buffer.speech_started":
            self._is_stopped = self._is_by_hand = False
        elif kind == "input_audio_buffer.speech_stopped":
            self._is_stopped = True
            self._ask_by_vad()
        elif kind == "input_audio_buffer.committed":
            if self._has_vad and not (self._is_stopped or self._is_by_hand):
                self._ask_by_vad()
            self._is_stopped = self._is_by_hand = False
        elif kind == "error":
            self._refused(text_of(said.error, "event_id"))

    def speak(self, said: FromServer) -> None:
        """A delta of speech; what comes after its response's end is passed over."""
        response = said.response_id or ""
        self.begin(response)
        answer = self._answers.get(response) or self._answer(response, None)
        if answer.is_over:
            return
        data, form = said.delta or "", self._formats.get(response, self._format)
        if form is None:
            answer.is_unmeasured = True
            return
        dur_ms = duration_ms(data, said.format or form[0], said.sample_rate_hz or form[1])
        if dur_ms > 0:
            answer.sent_ms += dur_ms
            self.stream_events.speak(
                self._turn_of(answer), dur_ms, is_silent(data) if form[0] == "pcm16" else None
            )

    def _create(self, said: FromClient) -> None:
        if text_of(said.response, "conversation") == "none":
            self._aside += 1
            self._remember(self._requests, said.event_id or "", _ASIDE)
            return
        if self._speaks(said.response):
            turn = self.ask()
            if turn is not None:
                self._remember(self._requests, said.event_id or "", turn)

    def _created(self, response: str, stated: Any) -> None:
        if response in self._answers:
            return
        is_aside = self._aside > 0 and not text_of(stated, "conversation_id")
        self._aside -= is_aside
        if not is_aside and "audio" in (_modalities(stated) or ("audio",)):
            self.begin(response)
        if response not in self._answers:
            # It answers nobody; if it speaks, that is a turn of its own.
            self._answer(response, None)
        form = _format(stated)
        if form is not None:
            self._remember(self._formats, response, self._known_format(form))

    def _done(self, response: str, stated: Any) -> None:
        answer = self._answers.get(response)
        if answer is None or answer.is_over:
            return
        answer.is_over = True
        status = text_of(stated, "status") or "completed"
        if status == "completed" and not answer.sent_ms:
            if answer.is_unmeasured:
                status = "unmeasured"
            elif _only_calls(stated):
                status = "called"
        self.done(response, status, text_of(stated, "status_details", "reason"))

    def _ask_by_vad(self) -> None:
        if self._vad_answers and self._speaks(None):
            if self.stream_events.is_spoken_over(self._asked):
                # The user went on, or what was taken for speech got no answer.
                self.give_up("interrupted")
            self.ask()

    def _speaks(self, stated: Any) -> bool:
        """Whether the server speaks a response: by the modalities that it states, else by the session's."""
        return self._is_realtime and "audio" in (_modalities(stated) or self._modalities)

    def _refused(self, event: str) -> None:
        turn = self._requests.pop(event, None)
        if turn == _ASIDE:
            self._aside = max(0, self._aside - 1)
        elif turn is not None:
            if turn == self._asked:
                self._asked = None
            self.stream_events.finish(turn, "failed")

    def _configure(self, session: Any) -> None:
        if not isinstance(session, dict):
            return
        form = _format(session)
        if form is not None:
            self._format = self._known_format(form)
        heard = _part(session, "audio", "input")
        for stated in (session, heard):
            if "turn_detection" in stated:
                vad = stated["turn_detection"]
                # A server that states none may have one all the same, and then says when speech stopped.
                self._has_vad = vad is not None
                self._vad_answers = not isinstance(vad, dict) or vad.get("create_response") is not False
        self._modalities = _modalities(session) or self._modalities
        if kind := text_of(session, "type"):
            self._is_realtime = kind not in ("transcription", "translation")

    def _known_format(self, stated: Any) -> tuple[str, float | None] | None:
        name = text_of(stated, "type") if isinstance(stated, dict) else stated
        encoding = FORMATS.get(name, name) if isinstance(name, str) else ""
        if encoding not in FORMATS.values():
            self._tell(UNKNOWN_FORMAT, name)
            return None
        rate = stated.get("rate") if isinstance(stated, dict) and encoding == "pcm16" else None
        return encoding, rate if isinstance(rate, (int, float)) else None

    def _sent_ms(self, response: str) -> float:
        answer = self._answers.get(response)
        return answer.sent_ms if answer else 0.0

    def _place(self, response: str | None, item: str | None) -> tuple[SpokenResponse | None, float]:
        of, before_ms = self._items.get(item or "", (response or "", 0.0))
        if item or of:
            return self._answers.get(of), before_ms
        return super()._place(None, None)

    def _remember(self, kept: OrderedDict[str, Any], name: str, value: Any) -> None:
        if name:
            kept[name] = value
            if len(kept) > MAX_ITEMS:
                kept.popitem(last=False)


def _part(of: Any, *names: str) -> dict[str, Any]:
    for name in names:
        of = of.get(name) if isinstance(of, dict) else None
    return of if isinstance(of, dict) else {}


def _modalities(stated: Any) -> list[Any] | None:
    """Return what a session or a response is made of, where it says so."""
    of = _part(stated)
    found = of.get("output_modalities") or of.get("modalities")
    return found if isinstance(found, list) else None


def _format(stated: Any) -> Any:
    """Return the format of speech that a session or a response states, None for none."""
    found = _part(stated, "audio", "output").get("format")
    if found is None:
        found = _part(stated).get("output_audio_format")
    return found if text_of(found, "type") or not isinstance(found, dict) else None


def _only_calls(response: Any) -> bool:
    """Whether a response asks for tools and says nothing: another one answers."""
    output = _part(response).get("output")
    return (
        isinstance(output, list)
        and bool(output)
        and all(text_of(item, "type") != "message" for item in output)
    )
