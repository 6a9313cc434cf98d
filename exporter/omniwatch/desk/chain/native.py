"""Have a turn with a model that hears and speaks: `POST /v1/chat/completions`, audio in, text and audio out."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omniwatch.desk.chain.calls import Calls, Server, post_json
from omniwatch.desk.chain.questions import Asked, picture_part, sound_part
from omniwatch.desk.chain.sentences import Sentences
from omniwatch.desk.chain.sound import Speech
from omniwatch.desk.chain.timeline import Timeline
from omniwatch.desk.probe import TurnFailedError
from omniwatch.desk.probe.chat import error_words
from omniwatch.tap.audio import SAMPLE_RATE_HZ
from omniwatch.tap.chat import Waveform

PATH = "/v1/chat/completions"


class Voice(msgspec.Struct):
    """Speech as OpenAI's own chat streams it."""

    data: str | None = None
    transcript: str | None = None


class Delta(msgspec.Struct):
    """What an event adds: vLLM-Omni has speech in `content`, OpenAI in `audio`."""

    content: str | None = None
    audio: Voice | None = None


class Choice(msgspec.Struct):
    """One answer."""

    delta: Delta | None = None
    audio_metadata: Waveform | None = None


class Usage(msgspec.Struct):
    """What the server counted."""

    completion_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class Event(msgspec.Struct):
    """One event of a streamed chat."""

    choices: list[Choice] = []
    modality: str | None = None
    usage: Usage | None = None
    error: Any = None


_event = msgspec.json.Decoder(Event)


def read_event(data: bytes) -> Event:
    """Read an event. Raises TurnFailedError for what is none, and for an error it states."""
    try:
        event = _event.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TurnFailedError("malformed", f"{error}: {data[:60]!r}") from error
    if event.error is not None:
        raise TurnFailedError("error", error_words(event.error))
    return event


class Native:
    """A client of the native chain."""

    def __init__(self, calls: Calls, server: Server) -> None:
        self._calls = calls
        self._server = server

    async def turn(self, asked: Asked, line: Timeline) -> None:
        """Ask and listen to the end. Raises TurnFailedError."""
        content = [*picture_part(asked), sound_part(asked)]
        document = {
            "messages": [{"role": "user", "content": content}],
            "modalities": ["text", "audio"],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        speech, sentences = Speech(SAMPLE_RATE_HZ), Sentences()
        async with post_json(self._calls, self._server, PATH, document, "text/event-stream") as answer:
            line.asked_t = answer.sent_t
            async for t, data in answer.events():
                event = read_event(data)
                if event.usage is not None and event.usage.completion_tokens:
                    line.tokens = event.usage.completion_tokens
                for choice in event.choices[:1]:
                    self._take(t, event, choice, line, speech, sentences)
            speech.end()

    @staticmethod
    def _take(
        t: float, event: Event, choice: Choice, line: Timeline, speech: Speech, sentences: Sentences
    ) -> None:
        delta = choice.delta or Delta()
        voice = delta.audio or Voice()
        sound = delta.content if event.modality == "audio" else voice.data
        words = voice.transcript if event.modality == "audio" else (delta.content or voice.transcript)
        if words:
            line.text(t, words)
            if sentences.feed(words):
                line.sentence(t)
        if sound:
            try:
                content = base64.b64decode(sound, validate=True)
            except binascii.Error as error:
                raise TurnFailedError("malformed", f"speech that is no base64: {error}") from error
            stated = choice.audio_metadata
            if stated is not None:
                speech.state(stated.sample_rate_hz)
            if content.startswith(b"RIFF"):
                speech.next_file()
            line.audio(t, speech.feed(content))
