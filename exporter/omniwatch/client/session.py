"""Run one turn over changing connections: decide when to connect, what to send, when the turn is over. Pure.

Time, bytes and randomness are arguments; the results are calls of a SessionHandler. The C++ client
(deploy/clients/omniwatch.hpp) has the same state machine, and the same vectors test both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from omniwatch.client.backoff import Backoff
from omniwatch.client.config import Config
from omniwatch.client.headers import RefusedError, TurnHeaders, parse_turn_headers, resume_body
from omniwatch.client.protocols import SessionHandler
from omniwatch.client.reorder_buffer import ReorderBuffer, end_reason
from omniwatch.client.turn_report import TurnReport
from omniwatch.frames import Frame, Kind


class _Mode(Enum):
    STARTING = 0
    RECEIVING = 1
    RECONNECTING = 2
    OVER = 3


REFUSED = {404: "unknown", 410: "gone", 416: "ahead"}
"""Reason why a turn cannot continue, by status."""
NO_WAY = "no way to the server"
"""Reason of a turn for which no connection came about."""
BUSY = (429, 503)
BUSY_S = 1.0
"""Seconds to wait after a server has answered that it is busy."""
HURRY_BEATS = 1.4
"""Heartbeats of the server without which a connection may count as lost, while the player is about to run dry."""
RETURN_RTTS = 3
"""Round trips of a return over TCP: a handshake, a request, and one to spare."""
SPARE_CONNECTIONS = 6
"""Most connections open at once besides the one that asked last."""


class Session:
    """Run one turn. Every input states its time; `wake_at` tells when `tick` is due if no input comes."""

    def __init__(
        self, handler: SessionHandler, config: Config, jitter: Callable[[], float], handshake_rtts: int = 1
    ) -> None:
        self.stream = ""
        """Id to resume under; empty before the first response."""
        self.buffer = ReorderBuffer(handler, config)
        self.report = TurnReport(self.buffer.playout)
        self.drift_ms: float | None = None
        """Milliseconds that the voice led the last picture shown, after the correction; None while no voice plays."""
        self._handler = handler
        self._config = config
        self._handshake_rtts = handshake_rtts
        """Round trips that a connection takes to establish: 1 for TCP, 2 with TLS 1.3."""
        self._mode = _Mode.STARTING
        # Start time of every open connection; of those, the connected ones without a request, and those with one.
        self._opened_at: dict[int, float] = {}
        self._idle: list[int] = []
        self._asked: list[int] = []
        self._asked_at = 0.0
        self._may_ask = True
        self._last_asked = self._warm = -1
        self._asks = self._conns = 0
        self._backoff = Backoff(config.backoff_s, jitter)
        self._data_at = self._reconnect_at = 0.0
        self._headers = TurnHeaders()
        self._lost_at: float | None = None
        self._results: dict[int, str] = {}

    @property
    def over(self) -> bool:
        """Return whether the turn has ended for this client."""
        return self._mode is _Mode.OVER

    def start(self, now: float, is_warm: bool = False) -> None:
        """Begin the turn; `is_warm`: connection 0 was established before, and is to be asked on at once."""
        self._data_at = now
        if is_warm:
            self._warm = self._conns
            self._conns += 1
            self._opened_at[self._warm] = now
            self._ask(now, self._warm)
        else:
            self._attempt(now)

    def abandon(self) -> None:
        """Forget all connections: the application stopped listening."""
        if not self.over:
            self.report.stop()
        self._mode = _Mode.OVER
        for conns in (self._opened_at, self._idle, self._asked):
            conns.clear()

    def opened(self, now: float, conn: int) -> None:
        """Use a connection that is established. One per attempt sends the request; spares wait for the next attempt."""
        if conn not in self._opened_at or conn in self._asked or conn in self._idle:
            return
        self._backoff.saw_rtt((now - self._opened_at[conn]) / self._handshake_rtts)
        if self._mode is _Mode.RECEIVING or (self._mode is _Mode.STARTING and self._asked):
            self._drop(conn)
        elif self._may_ask:
            self._ask(now, conn)
        else:
            self._idle.append(conn)

    def _ask(self, now: float, conn: int) -> None:
        self._may_ask = False
        self._asked.append(conn)
        self._asked_at = now
        self._last_asked = conn
        self._asks += 1
        if self._mode is _Mode.STARTING:
            self._backoff.next_try = now + self._config.answer_s
            self.report.asked(now)
            self._handler.ask(conn, None)
            return
        times = {"outage_ms": now - self._data_at, "rtt_ms": self._backoff.rtt_s}
        if self.buffer.playout.dry_at is not None:
            times["due_ms"] = self.buffer.playout.dry_at - now
        self._handler.ask(conn, resume_body(self.stream, self.buffer.place, self._asks, times))

    def head(self, now: float, conn: int, status: int, headers: Mapping[str, str]) -> None:
        """Process the head of a response; header names are in lower case."""
        if conn not in self._asked:
            return
        if conn == self._last_asked:
            self._backoff.saw_rtt(now - self._asked_at)
        if status in BUSY:
            self._drop(conn)
            self._backoff.next_try = now + BUSY_S
        elif not self.stream:
            try:
                self._headers = parse_turn_headers(status, headers)
            except RefusedError as error:
                self._end(now, f"refused: {error}")
                return
            self.stream = self._headers.stream
            self.buffer.begin(self._headers)
            self.report.begin(headers.get("x-omniwatch-stream", ""))
            self._receive(now, conn)
        elif status in REFUSED:
            self._end(now, REFUSED[status])
        elif status != 206:
            self._drop(conn)
        else:
            # No data yet: lost packets behind the head may delay the frames for longer than another attempt takes.
            self._results[conn] = headers.get("x-omni-result", "hit")

    def data(self, now: float, conn: int, frames: list[Frame]) -> None:
        """Process bytes of a connection that completed these frames, if any."""
        if conn not in self._asked or not self.stream:
            return
        if frames:
            self._data_at = now
        if self._mode is _Mode.RECEIVING or self._is_return(conn, frames):
            self._receive(now, conn)
        spoken, dry_at = self.buffer.spoken, self.buffer.playout.dry_at
        for frame in frames:
            if frame.kind == Kind.END and frame.part == 0:
                self._superseded(now, conn, end_reason(frame) or "")
                break
            self.buffer.take(now, frame)
        if self._mode is _Mode.RECEIVING:
            self.buffer.settle(now)
        if self.buffer.spoken:
            self.report.heard(now)
        if self._lost_at is not None and (self.buffer.spoken > spoken or self.buffer.ended):
            late_s = max(0.0, now - (now if dry_at is None else dry_at))
            result = self._results.get(conn, "")
            self._handler.resumed(result, now - self._lost_at, now - self._reconnect_at, late_s)
            self._lost_at = None
        self._check_end(now)

    def _is_return(self, conn: int, frames: list[Frame]) -> bool:
        """Tell whether frames end an outage. Heartbeats of the lost connection do not: its speech may be held up behind a loss."""
        return any(frame.kind != Kind.IDLE or conn in self._results for frame in frames)

    def closed(self, now: float, conn: int) -> None:
        """Process the end of a connection, or that it could not be established."""
        if self._opened_at.pop(conn, None) is None or self.over:
            return
        asked = conn in self._asked
        self._forget(conn)
        if self._mode is _Mode.RECEIVING and not self._asked:
            self._reconnect(now)
        elif self._mode is _Mode.STARTING and conn == self._warm:
            # The server may have closed it as the question was on its way.
            self._attempt(now)
        elif self._mode is _Mode.STARTING and asked:
            self._backoff.wait(now)

    def untrusted(self, now: float, conn: int) -> None:
        """Process a connection whose certificate is not trusted: end a turn that has not begun.

        A turn that has begun retries: a captive portal may have answered in the server's place.
        """
        if self._mode is _Mode.STARTING and conn in self._opened_at:
            self._end(now, NO_WAY)
        else:
            self.closed(now, conn)

    def again(self, now: float, frames: list[Frame]) -> None:
        """Process retransmitted frames."""
        if self.over:
            return
        for frame in frames:
            self.buffer.take(now, frame)
        if self._mode is _Mode.RECEIVING:
            self.buffer.settle(now)
        self._check_end(now)

    def refused(self, now: float, from_id: int) -> None:
        """Process the refusal of a retransmission."""
        if self.over:
            return
        self.buffer.refused(now, from_id)
        self._check_end(now)

    def picture(self, now: float, pts_ms: float) -> None:
        """Note that the picture of `pts_ms` is shown now; realign the voice where it is too far off."""
        if self.over:
            return
        playout = self.buffer.playout
        self.drift_ms = drift_ms = playout.drift_ms(now, pts_ms)
        if drift_ms is None or abs(drift_ms) <= self._config.drift_ms:
            return
        shift_ms = playout.shift(now, drift_ms)
        if shift_ms:
            self.drift_ms = drift_ms - shift_ms
            self._handler.realign(shift_ms)

    def tick(self, now: float) -> None:
        """Run what is due at `now`."""
        if self.over:
            return
        if self._mode is _Mode.RECEIVING:
            self.buffer.settle(now)
            self._check_end(now)
        if self._mode is _Mode.RECEIVING:
            if now >= self._silent_at():
                self._reconnect(now)
        elif self.over:
            return
        elif now >= self._give_up_at():
            self._end(now, NO_WAY)
        elif now >= self._backoff.next_try:
            if self._mode is _Mode.STARTING:
                for conn in list(self._asked):
                    self._drop(conn)
            self._attempt(now)

    def wake_at(self) -> float | None:
        """Return when `tick` is due; None when the turn is over."""
        if self.over:
            return None
        if self._mode is not _Mode.RECEIVING:
            return min(self._backoff.next_try, self._give_up_at())
        gap, silence = self.buffer.wake_at(), self._silent_at()
        return silence if gap is None else min(silence, gap)

    def _give_up_at(self) -> float:
        give_up_s = self._config.give_up_s
        return self._data_at + (self._headers.gone_s if give_up_s is None else give_up_s)

    def _silent_at(self) -> float:
        """Return when the connection counts as lost without data: sooner if the player would run dry meanwhile."""
        silent_at = self._data_at + max(self._config.silence_s, 4 * self._headers.heartbeat_s)
        dry_at = self.buffer.playout.dry_at
        if dry_at is None:
            return silent_at
        hurry_s = max(self._config.hurry_s, HURRY_BEATS * self._headers.heartbeat_s)
        return_s = (RETURN_RTTS - 1 + self._handshake_rtts) * self._backoff.rtt_s
        return min(silent_at, max(self._data_at + hurry_s, dry_at - return_s))

    def _reconnect(self, now: float) -> None:
        self._mode = _Mode.RECONNECTING
        self.buffer.pause()
        if self._lost_at is None:
            self._lost_at, self._reconnect_at = self._data_at, now
            self._results.clear()
        self._backoff.restart()
        self._attempt(now)

    def _attempt(self, now: float) -> None:
        """Send the request on an idle connection, else on the next established. The first attempt opens two: one may be lost."""
        first = self._backoff.attempt(now)
        self._may_ask = True
        if self._idle:
            self._ask(now, self._idle.pop(0))
        for _ in range(2 if first else 1):
            # The newest request wins at the server; of the other connections the oldest is the least likely to answer.
            spare = [other for other in self._opened_at if other not in self._asked[-1:]]
            if len(spare) >= SPARE_CONNECTIONS:
                self._drop(spare[0])
            self._opened_at[self._conns] = now
            self._conns += 1
            self._handler.open(self._conns - 1)

    def _receive(self, now: float, conn: int) -> None:
        """Note data on a connection: drop those asked before it and those not asked yet."""
        self._mode = _Mode.RECEIVING
        self._data_at = now
        needed = self._asked[self._asked.index(conn) :]
        for other in list(self._opened_at):
            if other not in needed:
                self._drop(other)

    def _superseded(self, now: float, conn: int, why: str) -> None:
        # Another request of this client took over, unless this was its last.
        if why == "superseded" and conn == self._last_asked:
            self._end(now, why)
            return
        self._drop(conn)
        if not self._asked:
            self._reconnect(now)

    def _check_end(self, now: float) -> None:
        if self.buffer.ended is not None and not self.over:
            self._end(now, self.buffer.ended)

    def _forget(self, conn: int) -> None:
        for conns in (self._asked, self._idle):
            if conn in conns:
                conns.remove(conn)

    def _drop(self, conn: int) -> None:
        if self._opened_at.pop(conn, None) is not None:
            self._forget(conn)
            self._handler.drop(conn)

    def _end(self, now: float, why: str) -> None:
        self._mode = _Mode.OVER
        self.report.end(now)
        for conn in list(self._opened_at):
            self._drop(conn)
        self._handler.ended(why)
