"""Write one stream's events of the event contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from omniwatch import events
from omniwatch.events import Turn
from omniwatch.system.hostport import join_host_port
from omniwatch.tap.arrival import Speech
from omniwatch.tap.asgi import Scope
from omniwatch.tap.line import Line
from omniwatch.tap.stream_name import MAX_NAME

MAX_CHUNK_MS = 600_000.0
MAX_PTS_MS = 1e12
RATE_ERROR, SLACK_MS = 1.01, 250.0
"""By how much a client's clock may run faster than the server's, and how much later the server may see what the client does."""
MAX_TURNS = 8
"""Turns of a stream that are remembered, for reports on them."""


class Moment(NamedTuple):
    """One moment on both clocks, in seconds: `t` is real time, which may be set, `m` never steps."""

    t: float
    m: float


class _Turn(msgspec.Struct):
    """What the server knows of a turn, by which a client's word on it is judged. Times are of the clock that never steps."""

    asked_m: float | None = None
    speech: Speech | None = None
    began_m: float | None = None
    """When its first speech was handed over."""
    handed_ms: float = 0.0
    heard_m: float = 0.0
    """When all that was handed over will have been heard, at the earliest."""
    is_interrupted: bool = False
    is_spoken_over: bool = False
    """Whether the user spoke up in it before the client had it stopped."""
    reported_m: float | None = None
    """When the client last said how long it had nothing to play."""
    underrun_ms: float = 0.0
    rtt_ms: float | None = None
    chars: int | None = None
    """Length of the answer's text so far; None while there is none."""


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
        self.at: Moment | None = None
        """When what is being read was said, where that was before."""
        self._put = put
        self._live = False
        self._open: dict[Turn, None] = {}
        self._turns: dict[Turn, _Turn] = {}

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
        speech = self.line.speech(self.name, turn) if self.line else None
        self._remember(turn, _Turn(m, speech))
        ear = "kernel" if speech else None
        self._put(events.TurnStart(t=t, m=m, stream=self.name, turn=turn, chars=chars, ear=ear))

    def write(self, turn: Turn | None, chars: int, at: Moment | None = None) -> None:
        """Text of an answer is handed to the network: the first of a turn that is open is told of, all of it counted."""
        known = self._turns.get(turn) if turn in self._open and chars > 0 else None
        if known is None or turn is None:
            return
        if known.chars is None:
            t, m = at or self.now()
            self._put(events.Text(t=t, m=m, stream=self.name, turn=turn))
        known.chars = (known.chars or 0) + chars

    def speak(self, turn: Turn, dur_ms: float, silent: bool | None = None) -> None:
        """Speech is handed to the network, in the message counted last; nothing if it has no length."""
        if dur_ms <= 0:
            return
        self.turn = turn
        self._open[turn] = None
        dur_ms = min(dur_ms, MAX_CHUNK_MS)
        t, m = self.at or (self.clock(), self.monotonic())
        self._put(events.Audio(t=t, m=m, stream=self.name, dur_ms=dur_ms, turn=turn, silent=silent))
        known = self._turns.get(turn) or self._remember(turn, _Turn())
        if known.began_m is None:
            known.began_m = m
        known.handed_ms += dur_ms
        known.heard_m = (known.heard_m if known.heard_m > m else m) + dur_ms / 1000
        if known.speech:
            known.speech.handed_ms += dur_ms
            self.repeat(turn, known.speech.handed_ms)

    def _remember(self, turn: Turn, known: _Turn) -> _Turn:
        self._turns[turn] = known
        if len(self._turns) > MAX_TURNS:
            del self._turns[next(iter(self._turns))]
        return known

    def speech_of(self, turn: Turn) -> Speech | None:
        """Return a turn's speech as the ear knows it; None where the turn is not known or not listened to."""
        known = self._turns.get(turn)
        return known.speech if known else None

    def repeat(self, turn: Turn, upto_ms: float) -> None:
        """The turn's speech up to there is in the message counted last, whether for the first time or again."""
        speech = self.speech_of(turn)
        if speech and self.line:
            self.line.speak(speech, upto_ms)

    def heard(self, turn: Turn, played_ms: float, source: str) -> None:
        """The client said how far it has played a turn, and where it has that from."""
        if 0 <= played_ms <= MAX_PTS_MS:
            t, m = self.now()
            self._put(
                events.Played(t=t, m=m, stream=self.name, turn=turn, played_ms=played_ms, source=source)
            )

    def interrupt(self, turn: Turn | None, *, is_cut: bool = False, by_voice: bool = False) -> bool:
        """The user speaks up: return whether the turn is open or, as far as is known, being heard; `is_cut`: it surely is."""
        known = None if turn is None else self._turns.get(turn)
        t, m = self.now()
        if known is None or turn is None or not (is_cut or turn in self._open or m < known.heard_m):
            return False
        if not known.is_interrupted:
            known.is_interrupted, known.is_spoken_over = True, by_voice
            self._put(events.Interrupt(t=t, m=m, stream=self.name, turn=turn))
        return True

    def is_spoken_over(self, turn: Turn | None) -> bool:
        """Whether the user spoke up in a turn, before the client had it stopped."""
        known = None if turn is None else self._turns.get(turn)
        return known is not None and known.is_spoken_over

    def cut_off(self, turn: Turn) -> None:
        """The listener hears no more of a turn, and nobody says how far it was played."""
        known = self._turns.get(turn)
        if known and known.began_m is not None:
            self.heard(turn, min(known.handed_ms, (self.now().m - known.began_m) * 1000), "model")

    def fault(self, code: str) -> None:
        """The server says that something went wrong."""
        t, m = self.now()
        self._put(events.Fault(t=t, m=m, stream=self.name, code=code[:MAX_NAME] or "other"))

    def report(
        self,
        turn: Turn | None,
        rtt_ms: float | None,
        played_ms: float | None,
        underrun_ms: float | None,
        source: str,
    ) -> str:
        """Take the client's own word on a turn, without one on the latest; return why it is not believed, else "".

        `rtt_ms` is text sent to first speech received, `underrun_ms` all the time so far without anything to play. Either
        all of a report is believed, or nothing.
        """
        turn = self.turn if turn is None else turn
        known = None if turn is None else self._turns.get(turn)
        if known is None:
            return "no such turn"
        now = self.now()

        def elapsed_ms(since_m: float | None) -> float:
            return -1.0 if since_m is None else _lenient((now.m - since_m) * 1000.0)

        if rtt_ms is not None and rtt_ms > elapsed_ms(known.asked_m):
            return "rtt_ms: no question of that turn was asked so long ago"
        if played_ms is not None:
            if known.began_m is None or played_ms > _lenient(known.handed_ms):
                return "played_ms: more than was handed over"
            if played_ms > elapsed_ms(known.began_m):
                return "played_ms: more than there was time for"
        if underrun_ms is not None:
            since_m = known.began_m if known.reported_m is None else known.reported_m
            if underrun_ms - known.underrun_ms > elapsed_ms(since_m):
                return "underrun_ms: more than the time since the last report"
        if rtt_ms is not None and rtt_ms != known.rtt_ms:
            # A client whose report was not answered says the same again.
            known.rtt_ms = rtt_ms
            self._put(events.Rtt(t=now.t, m=now.m, stream=self.name, turn=turn, rtt_ms=rtt_ms))
        if underrun_ms is not None:
            more_ms = max(0.0, underrun_ms - known.underrun_ms)
            known.reported_m, known.underrun_ms = now.m, known.underrun_ms + more_ms
            self._put(
                events.Underrun(t=now.t, m=now.m, stream=self.name, turn=turn, ms=more_ms, source=source)
            )
        if played_ms is not None and turn is not None:
            # After the underrun, which the playhead has in it.
            self.heard(turn, min(played_ms, known.handed_ms), source)
        return ""

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
            known = self._turns.get(turn)
            t, m = self.now()
            chars = known.chars if known else None
            self._put(events.TurnEnd(t=t, m=m, stream=self.name, turn=turn, reason=reason, chars=chars))

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
        """Return the present, or the moment of what is read again."""
        return self.at or Moment(self.clock(), self.monotonic())


def _lenient(ms: float) -> float:
    return ms * RATE_ERROR + SLACK_MS


def peer_of(scope: Scope) -> str | None:
    """Return the "ip:port" of the client's connection, where the server knows it and the contract has room for it."""
    client = scope.get("client")
    if not client or not client[1]:
        return None
    peer = join_host_port(*client)
    return peer if len(peer) <= MAX_NAME else None
