"""`WS /v1/realtime`, and `/v1/duplex`: speech in, speech out, by turns or both ways at once."""

from __future__ import annotations

import msgspec

from omniwatch.system.hostport import network_of
from omniwatch.tap.asgi import Scope
from omniwatch.tap.conversation import Conversation, FromClient, FromServer, text_of
from omniwatch.tap.general import General
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
SPEECH = ("response.output_audio.delta", "response.audio.delta")
FELL_BACK = "a client asked for duplex=1, and the server goes by turns"
MAX_EARLY = 256
"""Messages kept while the dialect is undecided."""
MAX_ID = 256
"""Characters of a session's id; one under a longer id is not remembered."""

_client = msgspec.json.Decoder(FromClient)
_server = msgspec.json.Decoder(FromServer)


class RealtimeObserver(WebsocketObserver):
    """One connection, in one of three dialects: what is said on it tells which. "turns" and "duplex" are vLLM-Omni 0.30's."""

    kind = "realtime"

    def __init__(self, scope: Scope, context: TapContext) -> None:
        super().__init__(scope, context)
        self._dialect = ""
        self._early: list[tuple[FromClient | FromServer, Moment]] = []
        """What was said before the dialect was known."""
        self._is_doubtful = False
        """Whether the server's greeting fits two dialects."""
        self._asks_duplex = b"duplex=1" in scope.get("query_string", b"").split(b"&")
        self._started = False
        self._resume: tuple[FromClient, float] | None = None
        self._generating_at: Moment | None = None
        client = scope.get("client")
        self._network = network_of(client[0]) if client and client[0] else ""
        self._owner = owner_of(scope.get("headers", ()))
        self._hold(Conversation(self.stream_events, self._owner))

    def accepted(self) -> None:
        """Not a stream yet: the client may be one that comes back."""

    def client_said(self, text: str) -> None:
        """Take requests, commits and playheads, and the client's return."""
        said = read(_client, text)
        if said is None:
            return
        if said.type == "session.resume" and not self._started:
            self._resume = said, self.context.monotonic()
            self._dialect = "duplex"
            return
        self._start_once()
        if self._dialect:
            self._client_says(said)
        elif said.type != "input_audio_buffer.append":
            self._wait(said, _of_client(said))

    def server_said(self, text: str) -> None:
        """Take speech, its end, and the answer to a client that came back."""
        said = read(_server, text)
        if said is None:
            return
        if self._resume is not None:
            self._answered_resume(said, *self._resume)
        self._start_once()
        if self._dialect:
            self._server_says(said)
        else:
            self._wait(said, self._of_server(said))

    def _of_server(self, said: FromServer) -> str:
        kind, session = said.type, said.session
        if said.server_event_seq is not None or said.resume_token is not None or said.metadata is not None:
            return "duplex"
        if kind in ("session.resumed", "session.resync_required", "response.listen"):
            return "duplex"
        if kind in SPEECH:
            return "general" if said.audio is None else "turns"
        if kind == "session.created" and session is None:
            return "turns"
        if kind in ("session.created", "session.updated") and isinstance(session, dict):
            if "type" not in session and "object" not in session:
                return "duplex"
            if not self._asks_duplex or self._is_doubtful:
                return "general"
            self._is_doubtful = True
            return ""
        return "general" if self._is_doubtful else ""

    def _wait(self, said: FromClient | FromServer, dialect: str) -> None:
        self._early.append((said, self.stream_events.now()))
        if dialect or len(self._early) >= MAX_EARLY:
            self._decide(dialect or "turns")

    def _decide(self, dialect: str) -> None:
        """Know the dialect, and read again what was said before."""
        self._dialect = dialect
        if dialect == "general":
            self._general = General(self.stream_events, self._owner, self.context.tell)
            self._hold(self._general)
        if self._asks_duplex and dialect != "duplex":
            self.context.tell(FELL_BACK)
        early, self._early = self._early, []
        for said, at in early:
            if self._over:
                break
            self.stream_events.at = at
            try:
                if isinstance(said, FromClient):
                    self._client_says(said)
                else:
                    self._server_says(said)
            finally:
                self.stream_events.at = None

    def _client_says(self, said: FromClient) -> None:
        kind, conversation = said.type, self._conversation
        if kind == "conversation.item.truncate":
            conversation.truncate(said)
        elif kind in ("response.cancel", "input.cancel"):
            conversation.speaks_up(by_voice=False)
        elif kind == "output_audio_buffer.clear":
            conversation.clear(None)
        elif self._dialect == "general":
            self._general.client_said(said)
        elif kind in ("input_audio_buffer.commit", "input.commit"):
            self._committed(said)
        elif kind == "response.create":
            conversation.ask()
        elif kind in ("playback.ack", "audio.playback_ack"):
            conversation.played(said)

    def _server_says(self, said: FromServer) -> None:
        kind, conversation = said.type, self._conversation
        if kind in TEXT:
            # By turns, the server may write before the client has said that its input is complete.
            conversation.write(said, early=self._generating_at is not None)
            return
        if kind == "input_audio_buffer.speech_started":
            conversation.speaks_up(by_voice=True)
        elif kind == "output_audio_buffer.cleared":
            conversation.clear(said.response_id)
        elif kind == "error":
            self.stream_events.fault(text_of(said.error, "code") or said.code or text_of(said.error, "type"))
        elif kind in ("session.created", "session.resumed"):
            self._opened(said)
        elif kind in ("session.closed", "session.expired"):
            self.leave(said.reason or "closed", "aborted")
            return
        if self._dialect == "general":
            self._general.server_said(said)
        else:
            self._of_0_30(said)

    def _of_0_30(self, said: FromServer) -> None:
        kind, conversation = said.type, self._conversation
        if kind in SPEECH:
            self._ask_late()
            conversation.speak(said)
        elif kind == "response.created":
            conversation.begin(_response_id(said))
        elif kind == "response.done":
            why = text_of(said.response, "status_details", "reason")
            conversation.done(_response_id(said), text_of(said.response, "status") or "completed", why)
        elif kind in ("response.output_audio.done", "response.audio.done"):
            # A duplex response ends with `response.done`, which also says how.
            if self._dialect == "turns":
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

    def leave(self, reason: str, outcome: str) -> None:
        """End the stream, unless another connection has taken the session over."""
        if self._conversation.holder is self:
            if not (self._dialect or self._over):
                self._decide("turns")
            self.context.sessions.leave(self._conversation, self.context.monotonic())
            super().leave(reason, outcome)
        self._over = True

    def _start_once(self) -> None:
        if not self._started:
            self._started = True
            self.start()

    def _committed(self, said: FromClient) -> None:
        if self._dialect == "duplex":
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
        name = _session_id(said)
        if not name:
            return
        self.known_as(name)
        if self._dialect == "duplex":
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
        # A client that resumes the conversation begun here later finds that no connection holds it.
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


def _of_client(said: FromClient) -> str:
    if said.final is not None:
        return "turns"
    return "duplex" if said.type in ("playback.ack", "audio.playback_ack", "input.commit") else ""


def _response_id(said: FromServer) -> str:
    return said.response_id or text_of(said.response, "id")


def _session_id(said: FromServer) -> str:
    """Return the session that the server names; "" for none, and for an id that is too long."""
    name = text_of(said.session, "id") or said.session_id or said.id or ""
    return name if len(name) <= MAX_ID and ELIDED not in name else ""
