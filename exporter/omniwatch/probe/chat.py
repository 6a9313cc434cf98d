"""Run turns over `POST /v1/chat/completions`, streamed as server-sent events: one request, one turn."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import msgspec

from omniwatch.media.sse import DONE, Events, TooLongError
from omniwatch.probe import Turn, TurnFailedError
from omniwatch.probe.report import STREAM_HEADER, connect
from omniwatch.probe.target import PATHS, Target
from omniwatch.probe.turn import MAX_MESSAGE_BYTES, Asking, Hearing, explain, take_turn
from omniwatch.tap.audio import duration_ms
from omniwatch.tap.chat import Chunk, Waveform

READ_BYTES = 65536


_chunk = msgspec.json.Decoder(Chunk)


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
        connection = connect(self._target, self._asking.timeout_s)
        try:
            self._connect(connection)
            if self._model is None:
                self._model = self._served_model(connection)
            # The answer may take the socket along with it; its timeout is set on each wait.
            link = connection.sock
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hearing.ask(self._asking.clock())
            connection.request("POST", self._target.prefix + PATHS["chat"], self._question(), self._headers())
            response = connection.getresponse()
            hearing.answered_as(response.headers.get(STREAM_HEADER))
            _check(response)
            self._listen(response, link, hearing)
        finally:
            connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise TurnFailedError("unreachable", f"{self._target.authority}: {explain(error)}") from error

    def _served_model(self, connection: http.client.HTTPConnection) -> str:
        """Ask for the model's name; the empty one stands for whatever the server has."""
        connection.request("GET", self._target.prefix + "/v1/models", headers=self._headers())
        response = connection.getresponse()
        body = response.read()
        if response.will_close:
            connection.close()
            self._connect(connection)
        try:
            return str(json.loads(body)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            return ""

    def _question(self) -> bytes:
        question: dict[str, Any] = {
            "messages": [{"role": "user", "content": self._asking.text}],
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

    def _listen(self, response: http.client.HTTPResponse, link: socket.socket, hearing: Hearing) -> None:
        """Take events until the answer says that it is complete."""
        clock, timeout_s = self._asking.clock, self._asking.timeout_s
        events = Events(MAX_MESSAGE_BYTES)
        deadline = clock() + timeout_s
        while True:
            left_s = deadline - clock()
            if left_s <= 0:
                raise TimeoutError
            link.settimeout(left_s)
            body = response.read1(READ_BYTES)
            t = clock()
            if not body:
                raise TurnFailedError("cut", "the answer ended without data: [DONE]")
            try:
                found = events.feed(body)
            except TooLongError as error:
                raise TurnFailedError("malformed", str(error)) from error
            for data in found:
                # A comment that only keeps the connection alive is nothing new, and is no event either.
                deadline = t + timeout_s
                if data.strip() == DONE:
                    return
                _take(hearing, t, data)


def _check(response: http.client.HTTPResponse) -> None:
    if response.status != 200:
        said = response.read(300).decode("utf-8", "replace")
        raise TurnFailedError("error", f"{response.status} {response.reason} {said}")
    kind = response.headers.get_content_type()
    if kind != "text/event-stream":
        raise TurnFailedError("malformed", f"expected text/event-stream, got {kind}")


def _take(hearing: Hearing, t: float, data: bytes) -> None:
    """Take one event: text, speech or neither."""
    try:
        chunk = _chunk.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = data[:60].decode("utf-8", "replace")
        raise TurnFailedError("malformed", f"{error}: {shown}") from error
    if chunk.error is not None:
        raise TurnFailedError("error", json.dumps(chunk.error))
    if not chunk.choices:
        return
    choice = chunk.choices[0]
    content = choice.delta.content if choice.delta else None
    if chunk.modality != "audio":
        hearing.said(content)
    elif content:
        stated = choice.audio_metadata or Waveform()
        dur_ms = duration_ms(content, stated.format, stated.sample_rate_hz)
        hearing.audio(t, dur_ms, content, stated.format, stated.sample_rate_hz)
