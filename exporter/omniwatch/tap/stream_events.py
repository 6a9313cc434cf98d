"""Write one stream's events of the event contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omniwatch import events
from omniwatch.events import Turn
from omniwatch.system.hostport import join_host_port
from omniwatch.tap.arrival import Speech
from omniwatch.tap.asgi import Scope
from omniwatch.tap.line import Line
from omniwatch.tap.stream_name import MAX_NAME

MAX_CHUNK_MS = 600_000.0
MAX_PTS_MS = 1e12
RATE_ERROR, SLACK_MS = 1.01, 50.0
"""By how much a client's clock may run faster than the server's, and how much later the server may see a question."""
MAX_QUESTIONS = 8
"""Turns of a stream whose question's time is remembered, for reports on them."""


class Moment(NamedTuple):
    """One moment on both clocks, in seconds: `t` is real time, which may be set, `m` never steps."""

    t: float
    m: float


class StreamEvents:
    """A client that is spoken to. Whatever is begun here is ended here, once: turns, then the stream.

    `put` takes each event; `clock` returns seconds of real time, `monotonic` seconds that never step. `turn` is the
    latest one, `line` the connection that carries its speech, where the ear listens to it.
    """

    def __init__(
        self,
        name: str,
        put: Callable[[events.Event], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.name = name
        self.clock = clock
        self.monotonic = monotonic
        self.turn: Turn | None = None
        self.line: Line | None = None
        self._put = put
        self._live = False
        self._open: dict[Turn, None] = {}
        self._questions: dict[Turn, float] = {}
        self._speeches: dict[Turn, Speech | None] = {}

    def start(self, peer: str | None, kind: str, at: Moment | None = None) -> None:
        """The client is connected."""
        self._live = True
        t, m = at or self.now()
        self._put(events.StreamStart(t=t, m=m, stream=self.name, peer=peer, kind=kind))

    def frame(self, pts_ms: float | None, frame_id: int | str | None) -> None:
        """A frame of the client's picture was received; without a PTS it tells nothing."""
        if pts_ms is None or abs(pts_ms) > MAX_PTS_MS:
            return
        if isinstance(frame_id, str):
            frame_id = frame_id[:MAX_NAME]
        self._put(
            events.Video(
                t=self.clock(), m=self.monotonic(), stream=self.name, pts_ms=pts_ms, frame_id=frame_id
            )
        )

    def ask(self, turn: Turn, chars: int | None = None, at: Moment | None = None) -> None:
        """The client's input is complete: the server should now speak."""
        self.turn = turn
        self._open[turn] = None
        t, m = at or self.now()
        self._questions[turn] = m
        speech = self._speeches[turn] = self.line.speech(self.name, turn) if self.line else None
        if len(self._questions) > MAX_QUESTIONS:
            forgotten = next(iter(self._questions))
            del self._questions[forgotten], self._speeches[forgotten]
        ear = "kernel" if speech else None
        self._put(events.TurnStart(t=t, m=m, stream=self.name, turn=turn, chars=chars, ear=ear))

    def speak(self, turn: Turn, dur_ms: float) -> None:
        """Speech is handed to the network, in the message counted last; nothing if it has no length."""
        if dur_ms <= 0:
            return
        self.turn = turn
        self._open[turn] = None
        dur_ms = min(dur_ms, MAX_CHUNK_MS)
        self._put(
            events.Audio(t=self.clock(), m=self.monotonic(), stream=self.name, dur_ms=dur_ms, turn=turn)
        )
        speech = self._speeches.get(turn)
        if speech:
            speech.handed_ms += dur_ms
            self.repeat(turn, speech.handed_ms)

    def speech_of(self, turn: Turn) -> Speech | None:
        """Return a turn's speech as the ear knows it; None where the turn is not known or not listened to."""
        return self._speeches.get(turn)

    def repeat(self, turn: Turn, upto_ms: float) -> None:
        """The turn's speech up to there is in the message counted last, whether for the first time or again."""
        speech = self._speeches.get(turn)
        if speech and self.line:
            self.line.speak(speech, upto_ms)

    def heard(self, turn: Turn, played_ms: float, source: str) -> None:
        """The client said how far it has played a turn, and where it has that from."""
        if 0 <= played_ms <= MAX_PTS_MS:
            self._put(
                events.Played(
                    t=self.clock(),
                    m=self.monotonic(),
                    stream=self.name,
                    turn=turn,
                    played_ms=played_ms,
                    source=source,
                )
            )

    def measured(self, turn: Turn | None, rtt_ms: float) -> bool:
        """The client reported its own time from text sent to first speech received; without a turn, of the latest.

        Returns False, and tells nothing, where there was no such question, or where it was not asked so long ago.
        """
        turn = self.turn if turn is None else turn
        asked_m = None if turn is None else self._questions.get(turn)
        now = self.now()
        if asked_m is None or rtt_ms > (now.m - asked_m) * 1000.0 * RATE_ERROR + SLACK_MS:
            return False
        self._put(events.Rtt(t=now.t, m=now.m, stream=self.name, turn=turn, rtt_ms=rtt_ms))
        return True

    def resumed(self, last_good_id: int, result: str, latency_ms: float, outage_ms: float | None) -> None:
        """A client came back, or was refused."""
        self._put(
            events.Resume(
                t=self.clock(),
                m=self.monotonic(),
                stream=self.name,
                last_good_id=last_good_id,
                result=result,
                latency_ms=latency_ms,
                outage_ms=outage_ms,
            )
        )

    def finish(self, turn: Turn | None, reason: str) -> None:
        """The server finished or gave up speaking; nothing if that turn is not open."""
        if turn is not None and turn in self._open:
            del self._open[turn]
            self._put(
                events.TurnEnd(t=self.clock(), m=self.monotonic(), stream=self.name, turn=turn, reason=reason)
            )

    def finish_all(self, reason: str) -> None:
        """End every turn that is open."""
        for turn in list(self._open):
            self.finish(turn, reason)

    def end(self, reason: str) -> None:
        """The client is gone; nothing if it never came, or has gone before."""
        if self._live:
            self._live = False
            self._put(events.StreamEnd(t=self.clock(), m=self.monotonic(), stream=self.name, reason=reason))

    def now(self) -> Moment:
        """Return the present."""
        return Moment(self.clock(), self.monotonic())


def peer_of(scope: Scope) -> str | None:
    """Return the "ip:port" of the client's connection, where the server knows it and the contract has room for it."""
    client = scope.get("client")
    if not client or not client[1]:
        return None
    peer = join_host_port(*client)
    return peer if len(peer) <= MAX_NAME else None
