"""`WS /v1/realtime`, and `/v1/duplex`: speech in, speech out, by turns or both ways at once."""

from __future__ import annotations

import msgspec

from omniwatch.system.hostport import network_of
from omniwatch.tap.asgi import Scope
from omniwatch.tap.conversation import Conversation, FromClient, FromServer
from omniwatch.tap.observer import TapContext, WebsocketObserver
from omniwatch.tap.partial_json import ELIDED, read
from omniwatch.tap.stream_events import Moment
from omniwatch.tap.stream_name import owner_of

PATHS = ("/v1/realtime", "/v1/duplex")
TEXT = (
    "transcription.delta",
    "response.output_audio_transcript.delta",
    "response.audio_transcript.delta",
    "response.output_text.delta",
    "response.text.delta",
)
"""Deltas of the answer's text, whatever a version calls them."""
MAX_ID = 256
"""Characters of a session's id; one under a longer id is not remembered."""

_client = msgspec.json.Decoder(FromClient)
_server = msgspec.json.Decoder(FromServer)


class RealtimeObserver(WebsocketObserver):
    """One connection, of a session by turns or of a duplex session."""

    kind = "realtime"

    def __init__(self, scope: Scope, context: TapContext) -> None:
        super().__init__(scope, context)
        self._duplex = False
        self._started = False
        self._resume: tuple[FromClient, float] | None = None
        self._generating_at: Moment | None = None
        client = scope.get("client")
        self._network = network_of(client[0]) if client and client[0] else ""
        self._hold(Conversation(self.stream_events, owner_of(scope.get("headers", ()))))

    def accepted(self) -> None:
        """Not a stream yet: the client may be one that comes back."""

    def client_said(self, text: str) -> None:
        """Take commits and playheads, and the client's return."""
        said = read(_client, text)
        if said is None:
            return
        if said.type == "session.resume" and not self._started:
            self._resume = said, self.context.monotonic()
            return
        self._start_once()
        if said.type in ("input_audio_buffer.commit", "input.commit"):
            self._committed(said)
        elif said.type == "response.create":
            self._conversation.ask()
        elif said.type in ("playback.ack", "audio.playback_ack"):
            self._conversation.played(said, said.played_ms, "player")
        elif said.type == "conversation.item.truncate":
            # A framework reckons it from what it queued; no player is asked.
            self._conversation.played(said, said.audio_end_ms, "framework")

    def server_said(self, text: str) -> None:
        """Take speech, its end, and the answer to a client that came back."""
        said = read(_server, text)
        if said is None:
            return
        if self._resume is not None:
            self._answered_resume(said, *self._resume)
        self._start_once()
        kind, conversation = said.type, self._conversation
        if kind in ("response.output_audio.delta", "response.audio.delta"):
            self._ask_late()
            conversation.speak(said)
        elif kind in TEXT:
            # By turns, the server may write before the client has said that its input is complete.
            conversation.write(said, early=self._generating_at is not None)
        elif kind == "response.created":
            conversation.begin(_response_id(said))
        elif kind == "response.done":
            conversation.done(_response_id(said), (said.response and said.response.status) or "completed")
        elif kind in ("response.output_audio.done", "response.audio.done"):
            # A duplex response ends with `response.done`, which also says how.
            if not self._duplex:
                self._generating_at = None
                conversation.begin("")
                conversation.done("", "completed")
        elif kind == "response.listen":
            conversation.give_up("listen")
        elif kind == "input_audio_buffer.speech_stopped":
            conversation.ask()
        elif kind == "error" and said.code == "processing_error":
            conversation.begin("")
            conversation.done("", "failed")
        elif kind in ("session.created", "session.resumed"):
            self._opened(said)
        elif kind in ("session.closed", "session.expired"):
            self.leave(said.reason or "closed", "aborted")

    def leave(self, reason: str, outcome: str) -> None:
        """End the stream, unless another connection has taken the session over."""
        if self._conversation.holder is self:
            self.context.sessions.leave(self._conversation, self.context.monotonic())
            super().leave(reason, outcome)
        self._over = True

    def _start_once(self) -> None:
        if not self._started:
            self._started = True
            self.start()

    def _committed(self, said: FromClient) -> None:
        if self._duplex:
            unanswered = said.create_response is False or said.response_create is False
            if said.final is not False and not unanswered:
                self._conversation.ask()
        elif not said.final:
            # By turns the first commit starts the generation and a final one ends the input, after which the client
            # waits; speech may begin before.
            self._generating_at = self._generating_at or self.context.now()
        elif self._generating_at is not None:
            self._generating_at = None
            self._conversation.ask()

    def _ask_late(self) -> None:
        if self._generating_at is not None:
            self._conversation.ask(self._generating_at)
            self._generating_at = None

    def _opened(self, said: FromServer) -> None:
        self._duplex = self._duplex or said.session is not None
        name = _session_id(said)
        if not name:
            return
        self.known_as(name)
        if self._duplex:
            self.context.sessions.name(self._conversation, name)

    def _answered_resume(self, said: FromServer, asked: FromClient, asked_m: float) -> None:
        result = self._result(said)
        if result is None:
            return
        self._resume = None
        latency_ms = max(0.0, (self.context.monotonic() - asked_m) * 1000.0)
        outage_ms = None
        # By the server's word, and not by the id that the client asked for: anyone can name another's.
        former = self.context.sessions.find(_session_id(said))
        own = self._conversation
        if result == "hit" and former is not None and former is not own and former.owner == own.owner:
            if former.left_m is not None:
                outage_ms = max(0.0, (asked_m - former.left_m) * 1000.0)
            self._take_over(former)
        self._start_once()
        last = min(max(asked.last_received_server_event_seq, 0), 2**32 - 1)
        self.stream_events.resumed(last, result, latency_ms, outage_ms)

    def _result(self, said: FromServer) -> str | None:
        if said.type == "session.resumed":
            return "hit"
        if said.type == "session.resync_required":
            return "gone"
        if said.type != "error":
            return None
        error = said.error if isinstance(said.error, dict) else {}
        if error.get("code") == "session_resume_expired":
            return "unknown"
        return "ahead" if "newer than" in str(error.get("message")) else "refused"

    def _take_over(self, former: Conversation) -> None:
        before = former.holder
        if before is not None:
            before.leave("replaced", "aborted")
        if self._started:
            # The server said something else first, which began a stream of this connection's own.
            self.stream_events.finish_all("aborted")
            self.stream_events.end("resumed")
            self._started = False
        # Whoever takes that one up finds no connection that carries it.
        self.context.sessions.leave(self._conversation, self.context.monotonic())
        for token in self._ids:
            self.context.reports.hand_on(token, self.stream_events, former.stream_events)
        self.stream_events = former.stream_events
        self.stream_events.line = self.line
        self._hold(former)

    def _hold(self, conversation: Conversation) -> None:
        self._conversation = conversation
        conversation.holder, conversation.left_m = self, None
        conversation.network = self._network


def _response_id(said: FromServer) -> str:
    return said.response_id or (said.response and said.response.id) or ""


def _session_id(said: FromServer) -> str:
    """Return the session that the server names; "" for none, and for an id that is too long."""
    name = (said.session and said.session.id) or said.session_id or said.id or ""
    return name if len(name) <= MAX_ID and ELIDED not in name else ""
