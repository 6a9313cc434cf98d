"""`WS /v1/video/chat/stream`: the client sends frames and a query, the server answers it in text and speech."""

from __future__ import annotations

import msgspec

from omniwatch.tap.asgi import Scope
from omniwatch.tap.audio import duration_ms, is_silent
from omniwatch.tap.observer import TapContext, WebsocketObserver
from omniwatch.tap.partial_json import ELIDED, read

PATH = "/v1/video/chat/stream"
FATAL_ERRORS = (
    "No frames buffered",
    "Query processing failed",
    "Preprocess failed",
    "Failed to build request",
    "Streaming video requires",
    "Internal error",
)
"""How the messages begin of those errors that leave a query unanswered; all others concern one frame or message."""


class FromClient(msgspec.Struct):
    """What is used of the client's messages."""

    type: str
    pts_ms: float | None = None
    frame_id: int | str | None = None
    text: str | None = None
    modalities: list[str] | None = None


class FromServer(msgspec.Struct):
    """What is used of the server's messages."""

    type: str
    data: str | None = None
    delta: str | None = None
    format: str | None = None
    message: str | None = None


_client = msgspec.json.Decoder(FromClient)
_server = msgspec.json.Decoder(FromServer)


class VideoObserver(WebsocketObserver):
    """Turns are counted 1, 2, 3 …; speech does not say which query it answers."""

    kind = "video"

    def __init__(self, scope: Scope, context: TapContext) -> None:
        super().__init__(scope, context)
        self._silent = False
        self._asked = 0
        self._waiting = 0
        """Queries whose answer has not begun."""
        self._answered: int | None = None
        """The turn of the last `response.start`; None while the server never sent one, as old ones do not."""

    def client_said(self, text: str) -> None:
        """Take frames and queries."""
        said = read(_client, text)
        if said is None:
            return
        if said.type == "video.frame":
            self.stream_events.frame(said.pts_ms, said.frame_id)
        elif said.type == "video.query":
            # The server gives up its answer to the query before.
            self.stream_events.finish_all("interrupted")
            if not self._silent:
                self._asked += 1
                self._waiting += 1
                chars = len(said.text) if said.text is not None and ELIDED not in said.text else None
                self.stream_events.ask(self._asked, chars)
        elif said.type == "session.config":
            self._silent = said.modalities is not None and "audio" not in said.modalities

    def server_said(self, text: str) -> None:
        """Take the answer. What is left on its way of an answer that was given up still belongs to the turn before."""
        said = read(_server, text)
        if said is None:
            return
        turn = self._asked if self._answered is None else self._answered
        if said.type in ("response.output_audio.delta", "response.audio.delta"):
            data = said.data or ""
            self.stream_events.speak(turn, duration_ms(data, said.format), is_silent(data))
        elif said.type in ("response.text.delta", "response.output_text.delta"):
            self.stream_events.write(turn, len(said.delta or ""))
        elif said.type in ("response.output_audio.done", "response.audio.done"):
            self.stream_events.finish(turn, "completed")
        elif said.type == "response.start":
            if self._waiting:
                self._waiting -= 1
            else:
                # The model speaks unasked.
                self.stream_events.finish_all("interrupted")
                self._asked += 1
            self._answered = self._asked
        elif said.type == "session.done":
            self.stream_events.finish_all("completed")
        elif said.type == "error" and (said.message or "").startswith(FATAL_ERRORS):
            self.stream_events.finish(self._asked, "failed")
