"""Run turns over `POST /v1/chat/completions`, streamed as server-sent events: one request, one turn."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omniwatch.desk.probe import Turn, TurnFailedError
from omniwatch.desk.probe.reporter import STREAM_HEADER
from omniwatch.desk.probe.target import PATHS, Target
from omniwatch.desk.probe.turn import MAX_ANSWER_S, MAX_MESSAGE_BYTES, Asking, Hearing, spoken_ms, take_turn
from omniwatch.media.sse import DONE, Events, TooLongError
from omniwatch.system import http
from omniwatch.tap.chat import Chunk, Waveform

READ_BYTES = 65536
MAX_MODELS_BYTES = 2**20


class Model(msgspec.Struct):
    """A model that the server has."""

    id: Annotated[str, Meta(max_length=1024)]


class Models(msgspec.Struct):
    """The answer of /v1/models."""

    data: list[Model]


_chunk = msgspec.json.Decoder(Chunk)
_models = msgspec.json.Decoder(Models)


class ChatClient:
    """A client that asks the same question again and again."""

    def __init__(self, target: Target, asking: Asking) -> None:
        self._target = target
        self._asking = asking
        self._model = asking.model

    def turn(self, number: int) -> Turn:
        """Ask once."""
        return take_turn(number, self._asking, self._converse)

    def close(self) -> None:
        """Nothing stays open between turns."""

    def _converse(self, hearing: Hearing) -> None:
        target = self._target
        connection = http.Connection(target.base, http.Deadline(self._asking.timeout_s, self._asking.clock))
        try:
            self._connect(connection)
            if self._model is None:
                self._model = self._served_model(connection)
            hearing.ask(self._asking.clock())
            connection.deadline.extend(self._asking.timeout_s)
            answer = connection.request(
                "POST", target.prefix + PATHS["chat"], self._question(), self._headers()
            )
            hearing.answered_as(answer.headers.get(STREAM_HEADER))
            _check(answer)
            self._listen(answer, connection.deadline, hearing)
        finally:
            connection.close()

    def _connect(self, connection: http.Connection) -> None:
        try:
            connection.connect()
        except http.UnreachableError as error:
            raise TurnFailedError("unreachable", f"{self._target.authority}: {error}") from error

    def _served_model(self, connection: http.Connection) -> str:
        """Ask for the model's name; the empty one stands for whatever the server has."""
        answer = connection.request("GET", self._target.prefix + "/v1/models", headers=self._headers())
        body = answer.read(MAX_MODELS_BYTES)
        if answer.ends_connection:
            self._connect(connection)
        try:
            return _models.decode(body).data[0].id
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError, RecursionError):
            return ""

    def _question(self) -> bytes:
        question: dict[str, Any] = {
            "messages": [{"role": "user", "content": self._asking.parts or self._asking.text}],
            "modalities": ["text", "audio"],
            "stream": True,
        }
        if self._model:
            question["model"] = self._model
        return json.dumps(question).encode()

    def _headers(self) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "X-Omni-Stream": self._asking.name,
            **self._asking.headers,
        }

    def _listen(self, answer: http.Answer, deadline: http.Deadline, hearing: Hearing) -> None:
        """Take events until the answer says that it is complete."""
        clock, timeout_s = self._asking.clock, self._asking.timeout_s
        events = Events(MAX_MESSAGE_BYTES)
        ends_at, size = clock() + MAX_ANSWER_S, 0
        deadline.extend(timeout_s)
        while True:
            body = answer.read_some(READ_BYTES)
            t = clock()
            size += len(body)
            if not body:
                raise TurnFailedError("cut", "the answer ended without data: [DONE]")
            if size > MAX_MESSAGE_BYTES:
                raise TurnFailedError("malformed", f"an answer of more than {MAX_MESSAGE_BYTES} bytes")
            if t > ends_at:
                raise TurnFailedError("timeout", f"the answer went on for more than {MAX_ANSWER_S:g} s")
            try:
                found = events.feed(body)
            except TooLongError as error:
                raise TurnFailedError("malformed", str(error)) from error
            for data in found:
                # A comment that only keeps the connection alive is nothing new, and is no event either.
                deadline.extend(timeout_s)
                if data.strip() == DONE:
                    return
                _take(hearing, t, data)


def _check(answer: http.Answer) -> None:
    if answer.status != 200:
        said = answer.read(300, cut=True).decode("utf-8", "replace")
        raise TurnFailedError("error", f"{answer.status} {answer.reason} {said}")
    kind = answer.headers.get_content_type()
    if kind != "text/event-stream":
        raise TurnFailedError("malformed", f"expected text/event-stream, got {kind}")


def error_words(error: Any) -> str:
    """Return an error that a server states, as JSON."""
    try:
        return json.dumps(error)
    except RecursionError:
        return "an error of too many levels"


def _take(hearing: Hearing, t: float, data: bytes) -> None:
    """Take one event: text, speech or neither."""
    try:
        chunk = _chunk.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = data[:60].decode("utf-8", "replace")
        raise TurnFailedError("malformed", f"{error}: {shown}") from error
    if chunk.error is not None:
        raise TurnFailedError("error", error_words(chunk.error))
    if not chunk.choices:
        return
    choice = chunk.choices[0]
    content = choice.delta.content if choice.delta else None
    if chunk.modality != "audio":
        hearing.said(content)
    elif content:
        stated = choice.audio_metadata or Waveform()
        dur_ms = spoken_ms(content, stated.format, stated.sample_rate_hz)
        hearing.audio(t, dur_ms, content, stated.format, stated.sample_rate_hz)
