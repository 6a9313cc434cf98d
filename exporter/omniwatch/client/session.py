"""One turn over connections that come and go: when to connect, what to ask, when all is over. Pure.

Time, bytes and luck are given; calls of a Handler come out. The C++ client (deploy/clients/omniwatch.hpp) is the same
machine, and the same vectors test both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from omniwatch.client import terms
from omniwatch.client.hearing import Hearing, reason
from omniwatch.client.pace import Pace
from omniwatch.client.roles import Config, Handler
from omniwatch.frames import Frame, Kind


class _Mode(Enum):
    ASKING = 0
    HEARING = 1
    SEEKING = 2
    OVER = 3


REFUSED = {404: "unknown", 410: "gone", 416: "ahead"}
"""Why a turn cannot be gone on with, by status."""
BUSY = (429, 503)
BUSY_S = 1.0
"""How long a server is left alone that has asked for it."""
RETURN_RTTS = 3
"""Round trips that a return takes: a handshake, a request, and something to spare."""
SPARE_CONNECTIONS = 6


class Session:
    """One turn. Every input has the time it comes at; `wake_at` says when `tick` is due if nothing comes."""

    def __init__(self, handler: Handler, config: Config, jitter: Callable[[], float]) -> None:
        self.stream = ""
        """The id to resume under, once there is one."""
        self.hearing = Hearing(handler, config)
        self.drift_ms: float | None = None
        """How far the voice led the picture when it was last shown, after what was done about it."""
        self._handler = handler
        self._config = config
        self._mode = _Mode.ASKING
        # Every live connection by when it was begun; of those, the ones that stand unused, and the ones asked on.
        self._opened_at: dict[int, float] = {}
        self._standing: list[int] = []
        self._asked: list[int] = []
        self._asked_at = 0.0
        self._may_ask = True
        self._last_asked = -1
        self._asks = self._conns = 0
        self._pace = Pace(config.backoff_s, jitter)
        self._heard_at = self._seek_at = 0.0
        self._terms = terms.Terms()
        self._lost_at: float | None = None
        self._results: dict[int, str] = {}

    @property
    def over(self) -> bool:
        """Whether the turn has ended for this listener."""
        return self._mode is _Mode.OVER

    def start(self, now: float) -> None:
        """Begin the turn."""
        self._heard_at = now
        self._attempt(now)

    def abandon(self) -> None:
        """The listener has left: nothing more is wanted."""
        self._mode = _Mode.OVER
        for conns in (self._opened_at, self._standing, self._asked):
            conns.clear()

    def opened(self, now: float, conn: int) -> None:
        """A connection stands. One for each attempt is asked on, the others wait for the next."""
        if conn not in self._opened_at or conn in self._asked or conn in self._standing:
            return
        self._pace.saw_rtt(now - self._opened_at[conn])
        if self._mode is _Mode.HEARING or (self._mode is _Mode.ASKING and self._asked):
            self._drop(conn)
        elif self._may_ask:
            self._ask(now, conn)
        else:
            self._standing.append(conn)

    def _ask(self, now: float, conn: int) -> None:
        self._may_ask = False
        self._asked.append(conn)
        self._asked_at = now
        self._last_asked = conn
        self._asks += 1
        if self._mode is _Mode.ASKING:
            self._pace.next_try = now + self._config.answer_s
            self._handler.ask(conn, None)
            return
        times = {"outage_ms": now - self._heard_at, "rtt_ms": self._pace.rtt_s}
        if self.hearing.playout.dry_at is not None:
            times["due_ms"] = self.hearing.playout.dry_at - now
        self._handler.ask(conn, terms.question(self.stream, self.hearing.place, self._asks, times))

    def head(self, now: float, conn: int, status: int, headers: Mapping[str, str]) -> None:
        """An answer begins; header names are in lower case."""
        if conn not in self._asked:
            return
        if conn == self._last_asked:
            self._pace.saw_rtt(now - self._asked_at)
        if status in BUSY:
            self._drop(conn)
            self._pace.next_try = now + BUSY_S
        elif not self.stream:
            try:
                self._terms = terms.read(status, headers)
            except terms.RefusedError as error:
                self._end(f"refused: {error}")
                return
            self.stream = self._terms.stream
            self.hearing.begin(self._terms)
            self._hear(now, conn)
        elif status in REFUSED:
            self._end(REFUSED[status])
        elif status != 206:
            self._drop(conn)
        else:
            # Not heard yet: what was lost of the frames behind it may take longer than another attempt.
            self._results[conn] = headers.get("x-omni-result", "hit")

    def data(self, now: float, conn: int, frames: list[Frame]) -> None:
        """Bytes came on a connection, with these whole frames in them."""
        if conn not in self._asked or not self.stream:
            return
        if self._mode is _Mode.HEARING or frames:
            self._hear(now, conn)
        spoken, dry_at = self.hearing.spoken, self.hearing.playout.dry_at
        for frame in frames:
            if frame.kind == Kind.END and frame.part == 0:
                self._farewell(now, conn, reason(frame))
                break
            self.hearing.take(now, frame)
        if self._mode is _Mode.HEARING:
            self.hearing.settle(now)
        if self._lost_at is not None and (self.hearing.spoken > spoken or self.hearing.ended):
            late_s = max(0.0, now - (now if dry_at is None else dry_at))
            result = self._results.get(conn, "")
            self._handler.resumed(result, now - self._lost_at, now - self._seek_at, late_s)
            self._lost_at = None
        self._check_end()

    def closed(self, now: float, conn: int) -> None:
        """A connection has ended, or could not be made."""
        if self._opened_at.pop(conn, None) is None or self.over:
            return
        asked = conn in self._asked
        self._forget(conn)
        if self._mode is _Mode.HEARING and not self._asked:
            self._seek(now)
        elif self._mode is _Mode.ASKING and asked:
            self._pace.wait(now)

    def again(self, now: float, frames: list[Frame]) -> None:
        """Frames came that `rtx` asked for."""
        if self.over:
            return
        for frame in frames:
            self.hearing.take(now, frame)
        if self._mode is _Mode.HEARING:
            self.hearing.settle(now)
        self._check_end()

    def refused(self, now: float, from_id: int) -> None:
        """What `rtx` asked for is not to be had."""
        if self.over:
            return
        self.hearing.refused(now, from_id)
        self._check_end()

    def picture(self, now: float, pts_ms: float) -> None:
        """The picture shown now is of `pts_ms`; sound that is too far from it is forced back."""
        if self.over:
            return
        playout = self.hearing.playout
        self.drift_ms = drift_ms = playout.drift_ms(now, pts_ms)
        if drift_ms is None or abs(drift_ms) <= self._config.drift_ms:
            return
        shift_ms = playout.shift(now, drift_ms)
        if shift_ms:
            self.drift_ms = drift_ms - shift_ms
            self._handler.realign(shift_ms)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.over:
            return
        if self._mode is _Mode.HEARING:
            self.hearing.settle(now)
            self._check_end()
        if self._mode is _Mode.HEARING:
            if now >= self._silent_at():
                self._seek(now)
        elif self.over:
            return
        elif now >= self._give_up_at():
            self._end("no way to the server")
        elif now >= self._pace.next_try:
            if self._mode is _Mode.ASKING:
                for conn in list(self._asked):
                    self._drop(conn)
            self._attempt(now)

    def wake_at(self) -> float | None:
        """When `tick` is due; None when the turn is over."""
        if self.over:
            return None
        if self._mode is not _Mode.HEARING:
            return min(self._pace.next_try, self._give_up_at())
        gap, silence = self.hearing.wake_at(), self._silent_at()
        return silence if gap is None else min(silence, gap)

    def _give_up_at(self) -> float:
        give_up_s = self._config.give_up_s
        return self._heard_at + (self._terms.gone_s if give_up_s is None else give_up_s)

    def _silent_at(self) -> float:
        """When the network is taken for lost, if nothing is heard: sooner when the player would run dry meanwhile."""
        silent_at = self._heard_at + max(self._config.silence_s, 4 * self._terms.heartbeat_s)
        dry_at = self.hearing.playout.dry_at
        if dry_at is None:
            return silent_at
        hurry_s = max(self._config.hurry_s, 2 * self._terms.heartbeat_s)
        return min(silent_at, max(self._heard_at + hurry_s, dry_at - RETURN_RTTS * self._pace.rtt_s))

    def _seek(self, now: float) -> None:
        self._mode = _Mode.SEEKING
        self.hearing.pause()
        if self._lost_at is None:
            self._lost_at, self._seek_at = self._heard_at, now
            self._results.clear()
        self._pace.restart()
        self._attempt(now)

    def _attempt(self, now: float) -> None:
        """Ask on a connection that stands, or on the first that will; two are opened at first, for one may be lost."""
        first = self._pace.attempt(now)
        self._may_ask = True
        if self._standing:
            self._ask(now, self._standing.pop(0))
        for _ in range(2 if first else 1):
            # At the server the newest asked wins; of the others the oldest is the least likely to answer.
            spare = [other for other in self._opened_at if other not in self._asked[-1:]]
            if len(spare) >= SPARE_CONNECTIONS:
                self._drop(spare[0])
            self._opened_at[self._conns] = now
            self._conns += 1
            self._handler.open(self._conns - 1)

    def _hear(self, now: float, conn: int) -> None:
        """A connection speaks: those asked before it are done with, and those not asked yet are not needed."""
        self._mode = _Mode.HEARING
        self._heard_at = now
        needed = self._asked[self._asked.index(conn) :]
        for other in list(self._opened_at):
            if other not in needed:
                self._drop(other)

    def _farewell(self, now: float, conn: int, why: str) -> None:
        # By a request of our own, unless this was the last.
        if why == "superseded" and conn == self._last_asked:
            self._end(why)
            return
        self._drop(conn)
        if not self._asked:
            self._seek(now)

    def _check_end(self) -> None:
        if self.hearing.ended is not None and not self.over:
            self._end(self.hearing.ended)

    def _forget(self, conn: int) -> None:
        for conns in (self._asked, self._standing):
            if conn in conns:
                conns.remove(conn)

    def _drop(self, conn: int) -> None:
        if self._opened_at.pop(conn, None) is not None:
            self._forget(conn)
            self._handler.drop(conn)

    def _end(self, why: str) -> None:
        self._mode = _Mode.OVER
        for conn in list(self._opened_at):
            self._drop(conn)
        self._handler.ended(why)
